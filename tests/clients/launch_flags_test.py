#!/usr/bin/env python3
"""The command lines that people bring from SGLang's article on long contexts parse as they are.

    tests/clients/launch_flags_test.py PROGRAM

What they ask for may not be built yet: then one sentence says so (exit 2). What the program does
not know, or takes for wrong usage, is another sentence.
"""
import os
import shlex
import subprocess
import sys
import tempfile
import unittest

from running_server import free_port

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""
ENVIRONMENT = {
    "SGLANG_DYNAMIC_CHUNKING_SMOOTH_FACTOR": "0.65",
    "SGLANG_PP_LAYER_PARTITION": "15,15,15,16",
}
LINES = [
    "--model-path M --trust-remote-code --nnodes 4 --node-rank 0 --tp 8 --pp-size 4 --port 30000 "
    "--dist-init-addr ADDRESS --mem-fraction-static 0.8 --attention-backend fa3 --host 0.0.0.0 "
    "--watchdog-timeout 3600 --max-running-requests 128 --chunked-prefill-size 12288 "
    "--enable-dynamic-chunking",
    "--model-path M --trust-remote-code --nnodes 4 --node-rank 0 --tp 4 --pp-size 8 --port 30000 "
    "--dist-init-addr ADDRESS --mem-fraction-static 0.8 --attention-backend fa3 --host 0.0.0.0 "
    "--watchdog-timeout 3600 --max-running-requests 128 --chunked-prefill-size 18432 "
    "--enable-dynamic-chunking",
    "--model-path M --trust-remote-code --nnodes 4 --node-rank 0 --tp 8 --pp-size 4 --port 30000 "
    "--dist-init-addr ADDRESS --mem-fraction-static 0.8 --attention-backend fa3 --host 0.0.0.0 "
    "--watchdog-timeout 3600 --max-running-requests 128 --chunked-prefill-size 6144 "
    "--enable-dynamic-chunking",
]
# Parts that come later; a line that is built finds that there is no such model.
NOT_BUILT = (" --tp 8", " --tp 4")


class LaunchFlagsTest(unittest.TestCase):
    def serve(self, line):
        with tempfile.TemporaryDirectory() as folder:
            line = line.replace("ADDRESS", f"127.0.0.1:{free_port()}")
            line = line.replace("30000", str(free_port())).replace(" M ", f" {folder}/none ")
            return subprocess.run([PROGRAM, "serve", *shlex.split(line)], capture_output=True,
                                  text=True, timeout=60, env={**os.environ, **ENVIRONMENT})

    def check(self, line):
        done = self.serve(line)
        sentence = done.stderr.strip().splitlines()[-1]
        if done.returncode == 2:
            self.assertRegex(sentence, "built yet", line)
        else:
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("/none", sentence)
        for flag in ("--trust-remote-code", "--attention-backend"):
            notes = [note for note in done.stderr.splitlines() if note.startswith(flag)]
            self.assertEqual(len(notes), 1, done.stderr)

    def test_each_line(self):
        for line in LINES:
            self.check(line)

    def test_what_is_built_starts(self):
        for line in LINES:
            for part in NOT_BUILT:
                line = line.replace(part, "")
            done = self.serve(line)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("/none", done.stderr)

    def test_other_spellings(self):
        for line in (
            "--model M --tensor-parallel-size 1 --pipeline-parallel-size 2 --max-queued-requests 5",
            "--model-path M --context-parallel-size 1 --expert-parallel-size 1 --api-key k",
            "--model-path M --served-model-name n --page-size 64 --kv-cache-dtype auto",
        ):
            os.environ.pop("SGLANG_PP_LAYER_PARTITION", None)
            done = self.serve(line + " --dtype auto")
            self.assertIn("/none", done.stderr, line)

    def test_flags_without_meaning_are_noted(self):
        flags = ("--enable-metrics", "--random-seed 42", "--skip-server-warmup",
                 "--disable-cuda-graph")
        done = self.serve(f"--model-path M {' '.join(flags)} --chunked-prefill-size -1")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("/none", done.stderr)
        for flag in flags:
            self.assertIn(f"{flag.split()[0]} has no meaning here", done.stderr)

    def test_what_is_unknown_is_told_otherwise(self):
        done = self.serve(LINES[0] + " --no-such-flag")
        self.assertEqual(done.returncode, 2)
        self.assertNotIn("built yet", done.stderr)
        self.assertIn("no-such-flag", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
