#!/usr/bin/env python3
"""The official OpenAI client and a LangChain chat model against `longspan serve`.

    tests/clients/openai_client_test.py PROGRAM

Runs in the environment that tools/setup.sh --test makes (.venv); without it, it says so and exits 77.
"""
import os
import pathlib
import socket
import subprocess
import sys
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venv" / "bin" / "python"
SKIPPED = 77
KEY = "test-key"

if __name__ == "__main__" and pathlib.Path(sys.prefix) != ROOT / ".venv":
    if not PYTHON.exists():
        print("skipped: no .venv, which tools/setup.sh --test makes where it can")
        sys.exit(SKIPPED)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

import openai  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402

TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
QUESTION = [{"role": "user", "content": "Who is there?"}]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Server:
    def __init__(self, program):
        self.port = free_port()
        command = [program, "serve", "--port", str(self.port), "--api-key", KEY, "--dtype", "f32"]
        self.process = subprocess.Popen([*command, "--log-level", "error"])
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health")
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("the server does not start")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def metric(self, name):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as reply:
            for line in reply.read().decode().splitlines():
                if line.startswith(name + " "):
                    return float(line.split()[1])
        raise KeyError(name)

    def stop(self):
        self.process.terminate()
        return self.process.wait(timeout=60)


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(sys.argv[1])
        cls.client = openai.OpenAI(base_url=cls.server.url, api_key=KEY, max_retries=0)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def test_completions(self):
        reply = self.client.completions.create(
            model=self.model, prompt="ROMEO:", max_tokens=8, temperature=0, logprobs=2
        )
        self.assertEqual(reply.usage.completion_tokens, 8)
        self.assertEqual(len(reply.choices[0].logprobs.tokens), 8)
        pieces = self.client.completions.create(
            model=self.model, prompt="ROMEO:", max_tokens=8, temperature=0, stream=True
        )
        self.assertEqual("".join(p.choices[0].text for p in pieces), reply.choices[0].text)

    def test_chat(self):
        reply = self.client.chat.completions.create(
            model=self.model, messages=QUESTION, max_tokens=12, temperature=0,
            logprobs=True, top_logprobs=3, n=2,
        )
        self.assertEqual(len(reply.choices), 2)
        self.assertEqual(reply.choices[0].message.role, "assistant")
        self.assertEqual(len(reply.choices[0].logprobs.content[0].top_logprobs), 3)
        stream = self.client.chat.completions.create(
            model=self.model, messages=QUESTION, max_tokens=12, temperature=0, stream=True,
            stream_options={"include_usage": True},
        )
        chunks = list(stream)
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, reply.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens * 2, reply.usage.completion_tokens)

    def test_stream_helper(self):
        with self.client.chat.completions.stream(
            model=self.model, messages=QUESTION, max_tokens=300, temperature=0, stop=[" "]
        ) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].finish_reason, "stop")

    def test_tools(self):
        # The small model has never seen a tool: that it is begun for it is all that one can ask.
        reply = self.client.chat.completions.create(
            model=self.model, messages=QUESTION, max_tokens=30, temperature=0, tools=[TOOL],
            tool_choice="auto",
        )
        self.assertIn(reply.choices[0].finish_reason, ("stop", "length", "tool_calls"))
        named = {"type": "function", "function": {"name": "weather"}}
        bias = {}
        reply = self.client.chat.completions.create(
            model=self.model, messages=QUESTION, max_tokens=10, temperature=0, tools=[TOOL],
            tool_choice=named, logit_bias=bias,
        )
        message = reply.choices[0].message
        for call in message.tool_calls or []:
            self.assertEqual(call.function.name, "weather")

    def test_errors(self):
        stranger = openai.OpenAI(base_url=self.server.url, api_key="wrong", max_retries=0)
        with self.assertRaises(openai.AuthenticationError):
            stranger.models.list()
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.chat.completions.create(
                model=self.model, messages=QUESTION, response_format={"type": "json_object"}
            )
        self.assertEqual(caught.exception.param, "response_format")
        with self.assertRaises(openai.BadRequestError) as caught:
            self.client.completions.create(model=self.model, prompt=[5] * 50000)
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nothing")

    def test_timeouts_and_cancellation(self):
        impatient = self.client.with_options(timeout=0.3)
        with self.assertRaises(openai.APITimeoutError):
            impatient.completions.create(
                model=self.model, prompt=[7 + i % 900 for i in range(30000)], max_tokens=1
            )
        self.expect_nothing_runs()
        stream = self.client.completions.create(
            model=self.model, prompt="ROMEO:", max_tokens=30000, stream=True,
            extra_body={"ignore_eos": True},
        )
        next(iter(stream))
        stream.close()
        self.expect_nothing_runs()

    def expect_nothing_runs(self):
        for _ in range(500):
            if self.server.metric("longspan_kv_used_tokens") == 0:
                return
            time.sleep(0.02)
        self.fail("pages are still in use")

    def test_langchain(self):
        chat = ChatOpenAI(
            model=self.model, base_url=self.server.url, api_key=KEY, temperature=0, max_tokens=8
        )
        whole = chat.invoke("Who is there?")
        self.assertTrue(whole.content)
        pieces = list(chat.stream("Who is there?"))
        self.assertEqual("".join(p.content for p in pieces), whole.content)
        self.assertGreater(whole.usage_metadata["input_tokens"], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
