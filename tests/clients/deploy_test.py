#!/usr/bin/env python3
"""The examples of deploy/, as far as they can be checked without the systems that they are for.

    tests/clients/deploy_test.py PROGRAM
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from running_server import PYTHON, ROOT, use_installed_clients

if __name__ == "__main__" and PYTHON.exists():
    use_installed_clients()

try:
    import yaml  # noqa: E402
except ImportError:
    yaml = None

PROGRAM = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "")
DEPLOY = ROOT / "deploy"


def flags_of(text):
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


class DeployTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = subprocess.run([PROGRAM, "serve", "--help"], capture_output=True, check=True)
        cls.help = done.stdout.decode()
        cls.known = flags_of(cls.help)

    def check_variables(self, text):
        for name in set(re.findall(r"LONGSPAN_[A-Z_]+", text)):
            self.assertIn(name, self.help)


@unittest.skipIf(yaml is None, "there is no PyYAML")
class KubernetesTest(DeployTest):
    def setUp(self):
        self.text = (DEPLOY / "leaderworkerset.yaml").read_text()
        self.group, self.service = yaml.safe_load_all(self.text)
        self.template = self.group["spec"]["leaderWorkerTemplate"]

    def containers(self):
        for pod in ("leaderTemplate", "workerTemplate"):
            yield from self.template[pod]["spec"]["containers"]

    def test_the_program_knows_the_flags(self):
        for container in self.containers():
            flags = {argument.split("=")[0] for argument in container["args"]}
            self.assertLessEqual(flags, self.known)
        self.check_variables(self.text)

    def test_all_pods_run_the_same_command(self):
        leader, worker = self.containers()
        self.assertEqual(leader["args"], worker["args"])
        arguments = dict(argument.split("=", 1) for argument in leader["args"])
        self.assertEqual(int(arguments["--pp-size"]) % self.template["size"], 0)
        # What the controller sets in every pod of a group.
        for variable in ("LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "LWS_LEADER_ADDRESS"):
            self.assertIn(f"$({variable})", self.text)

    def test_volumes_are_there(self):
        for pod in ("leaderTemplate", "workerTemplate"):
            spec = self.template[pod]["spec"]
            volumes = {volume["name"] for volume in spec["volumes"]}
            for container in spec["containers"]:
                self.assertLessEqual({m["name"] for m in container["volumeMounts"]}, volumes)

    def test_ports_and_probes_are_the_servers(self):
        leader = next(self.containers())
        arguments = dict(argument.split("=", 1) for argument in leader["args"])
        ports = {port["containerPort"] for port in leader["ports"]}
        self.assertIn(int(arguments["--port"]), ports)
        self.assertIn(int(arguments["--dist-init-addr"].rsplit(":", 1)[1]), ports)
        for probe in ("readinessProbe", "startupProbe"):
            self.assertEqual(leader[probe]["httpGet"], {"path": "/health", "port": 30000})
        selector = self.service["spec"]["selector"]
        labels = self.template["leaderTemplate"]["metadata"]["labels"]
        self.assertLessEqual(selector.items(), labels.items())
        self.assertEqual(self.service["spec"]["ports"][0]["targetPort"], int(arguments["--port"]))


class SystemdTest(DeployTest):
    def setUp(self):
        self.text = (DEPLOY / "longspan.service").read_text()

    def test_the_program_knows_the_flags(self):
        command = re.search(r"^ExecStart=(.*)$", self.text, re.MULTILINE).group(1)
        self.assertIn(" serve ", command)
        self.assertLessEqual(flags_of(command), self.known)
        self.check_variables(self.text)

    def test_systemd_takes_it(self):
        if shutil.which("systemd-analyze") is None:
            self.skipTest("there is no systemd-analyze")
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "longspan.service"
            unit.write_text(self.text.replace("/opt/longspan/bin/longspan", str(PROGRAM.resolve())))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit],
                                  capture_output=True, text=True, timeout=60)
        # It looks at other units of the machine, too.
        ours = [line for line in done.stderr.splitlines() if "longspan.service" in line]
        self.assertEqual(ours, [])
        wrong = self.text.replace("KillMode=mixed", "KillMode=sometimes")
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / "longspan.service"
            unit.write_text(wrong.replace("/opt/longspan/bin/longspan", str(PROGRAM.resolve())))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit],
                                  capture_output=True, text=True, timeout=60)
        self.assertIn("kill mode", done.stderr.lower())


class DockerfileTest(DeployTest):
    def setUp(self):
        text = (DEPLOY / "Dockerfile").read_text()
        self.lines = [line for line in text.replace("\\\n", " ").splitlines()
                      if line and not line.startswith("#")]

    def arguments(self, instruction):
        return [line.split(None, 1)[1] for line in self.lines if line.startswith(instruction + " ")]

    def test_its_commands_are_those_of_the_tools(self):
        runs = " && ".join(self.arguments("RUN"))
        tools = re.findall(r"tools/\S+", runs)
        self.assertEqual(tools, ["tools/setup.sh", "tools/build.sh"])
        for line in self.arguments("COPY"):
            if line.startswith("--from"):
                continue
            for source in line.split()[:-1]:
                self.assertTrue((ROOT / source).exists(), source)
        # What setup.sh calls is copied with it.
        called = set(re.findall(r"[\w/]*?(\w+\.sh)", (ROOT / "tools" / "setup.sh").read_text()))
        copied = next(line for line in self.arguments("COPY") if "tools/" in line)
        for name in called - {"build.sh", "test.sh"}:
            self.assertIn(name, copied)

    def test_it_installs_what_is_linked(self):
        """The second stage has the packages of all shared libraries."""
        if shutil.which("dpkg") is None or shutil.which("ldd") is None:
            self.skipTest("there is no dpkg, or no ldd")
        linked = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
        installed = " ".join(self.arguments("RUN")).split()
        always = {"libc6", "libstdc++6", "libgcc-s1", "libm6"}
        for library in re.findall(r"=> (/\S+)", linked):
            path = pathlib.Path(library).resolve()
            found = subprocess.run(["dpkg", "-S", f"*/{path.name}"], capture_output=True, text=True)
            packages = {line.split(":")[0] for line in found.stdout.splitlines()}
            if packages and not packages & always:
                self.assertTrue(packages & set(installed), f"{library}: {packages}")

    def test_the_program_knows_the_flags(self):
        entry = json.loads(self.arguments("ENTRYPOINT")[0])
        self.assertEqual(entry[:2], ["/opt/longspan/bin/longspan", "serve"])
        self.assertLessEqual(flags_of(" ".join(entry)), self.known)
        self.assertIn("/health", " ".join(self.arguments("HEALTHCHECK")))

    def test_the_installed_program_finds_its_model(self):
        cache = PROGRAM.resolve().parent / "CMakeCache.txt"
        if not cache.exists():
            self.skipTest("the program lies outside its build folder")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["cmake", "--install", cache.parent, "--prefix", folder],
                           capture_output=True, check=True)
            program = pathlib.Path(folder) / "bin" / "longspan"
            done = subprocess.run([program, "generate", "--prompt", "To be", "--max-tokens", "1"],
                                  capture_output=True, cwd="/", timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
