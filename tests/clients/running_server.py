"""`longspan serve` in a process of its own, for tests in Python."""
import json
import os
import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
SKIPPED = 77


def use_installed_clients():
    """Goes on in the environment that tools/setup.sh --test makes, or exits as skipped."""
    if pathlib.Path(sys.prefix) == ROOT / ".venv":
        return
    if not PYTHON.exists():
        print("skipped: no .venv, which tools/setup.sh --test makes where it can")
        sys.exit(SKIPPED)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    def __init__(self, program, *flags, key=None):
        self.port = free_port()
        self.key = key
        command = [program, "serve", "--port", str(self.port), "--dtype", "f32"]
        command += ["--log-level", "error", *flags]
        if key:
            command += ["--api-key", key]
        self.process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                self.get("/health")
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the server does not start")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def request(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data)
        request.add_header("Content-Type", "application/json")
        if self.key:
            request.add_header("Authorization", f"Bearer {self.key}")
        return urllib.request.urlopen(request)

    def get(self, path):
        with self.request(path) as reply:
            return reply.read()

    def post(self, path, body):
        with self.request(path, body) as reply:
            return json.load(reply)

    def refusal(self, path, body):
        """Status and error object of a request that must be refused."""
        try:
            self.request(path, body)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["error"]
        raise AssertionError(f"{path} takes {body}")

    def stream(self, path, body):
        """The events of a stream, which must end with [DONE]; every event is one line."""
        with self.request(path, {**body, "stream": True}) as reply:
            lines = reply.read().decode().split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""], lines[-3:]
        lines = [line for line in lines[:-2] if not line.startswith(":")]
        assert all(line.startswith("data: ") and "\n" not in line for line in lines), lines
        return [json.loads(line[6:]) for line in lines]

    def metric(self, name):
        for line in self.get("/metrics").decode().splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise KeyError(name)

    def is_idle(self):
        for _ in range(500):
            if self.metric("longspan_kv_used_tokens") == 0:
                return True
            time.sleep(0.02)
        return False

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=60)
