#!/usr/bin/env python3
"""The official OpenAI client and a LangChain chat model against `longspan serve`.

    tests/clients/openai_client_test.py PROGRAM

Runs in the environment that tools/setup.sh --test makes (.venv); without it, it says so and exits 77.
"""
import asyncio
import sys
import unittest

from running_server import Server, use_installed_clients

if __name__ == "__main__":
    use_installed_clients()

import httpx  # noqa: E402
import openai  # noqa: E402
from langchain_openai import ChatOpenAI, OpenAI as LangChainCompletions  # noqa: E402

KEY = "test-key"
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
LONG = [7 + i % 900 for i in range(30000)]


class ClientTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(sys.argv[1], key=KEY)
        cls.options = {"base_url": cls.server.url + "/v1", "api_key": KEY, "max_retries": 0}
        cls.client = openai.OpenAI(**cls.options)
        cls.model = cls.client.models.list().data[0].id

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def complete(self, **arguments):
        return self.client.completions.create(
            **{"model": self.model, "prompt": "ROMEO:", "max_tokens": 8, "temperature": 0,
               **arguments})

    def chat(self, **arguments):
        return self.client.chat.completions.create(
            **{"model": self.model, "messages": QUESTION, "max_tokens": 12, "temperature": 0,
               **arguments})

    def test_models(self):
        model = self.client.models.retrieve(self.model)
        self.assertEqual((model.id, model.object), (self.model, "model"))

    def test_completions(self):
        reply = self.complete(logprobs=2)
        self.assertEqual(reply.usage.completion_tokens, 8)
        self.assertEqual(len(reply.choices[0].logprobs.tokens), 8)
        pieces = self.complete(stream=True)
        self.assertEqual("".join(p.choices[0].text for p in pieces), reply.choices[0].text)
        batch = self.complete(prompt=["ROMEO:", "To be"], n=2)
        self.assertEqual([choice.index for choice in batch.choices], [0, 1, 2, 3])
        self.assertEqual(batch.choices[0].text, reply.choices[0].text)
        ids = self.complete(prompt=[[37, 308], [5, 6, 7]], echo=True)
        self.assertEqual(ids.usage.prompt_tokens, 5)

    def test_chat(self):
        reply = self.chat(logprobs=True, top_logprobs=3, n=2)
        self.assertEqual(len(reply.choices), 2)
        self.assertEqual(reply.choices[0].message.role, "assistant")
        tokens = reply.choices[0].logprobs.content
        self.assertEqual(len(tokens[0].top_logprobs), 3)
        raw = b"".join(bytes(token.bytes) for token in tokens)
        self.assertEqual(raw.decode(errors="replace"), reply.choices[0].message.content)
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}, logprobs=True))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, reply.choices[0].message.content)
        self.assertEqual(chunks[-1].usage.completion_tokens * 2, reply.usage.completion_tokens)
        self.assertTrue(all(chunk.usage is None for chunk in chunks[:-1]))
        streamed = [entry.token for c in chunks if c.choices and c.choices[0].logprobs
                    for entry in c.choices[0].logprobs.content]
        self.assertEqual(streamed, [token.token for token in tokens])

    def test_seeds(self):
        texts = {seed: self.chat(seed=seed, temperature=1.2).choices[0].message.content
                 for seed in (1, 2, 3)}
        self.assertGreater(len(set(texts.values())), 1)
        again = self.chat(seed=2, temperature=1.2).choices[0].message.content
        self.assertEqual(again, texts[2])

    def test_stream_helper(self):
        with self.client.chat.completions.stream(
            model=self.model, messages=QUESTION, max_tokens=300, temperature=0, stop=[" "]
        ) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        self.assertEqual(final.choices[0].finish_reason, "stop")

    def test_tools(self):
        # The small model has never seen a tool; tools_test.py has models that call.
        reply = self.chat(tools=[TOOL], tool_choice="auto")
        self.assertIn(reply.choices[0].finish_reason, ("stop", "length", "tool_calls"))
        named = {"type": "function", "function": {"name": "weather"}}
        reply = self.chat(tools=[TOOL], tool_choice=named, logit_bias={})
        for call in reply.choices[0].message.tool_calls or []:
            self.assertEqual(call.function.name, "weather")

    def refused(self, kind, call, **arguments):
        with self.assertRaises(kind) as caught:
            call(**arguments)
        self.assertTrue(caught.exception.body["message"])
        return caught.exception

    def test_errors(self):
        for key in ("wrong", "", KEY + "x", KEY[:-1]):
            stranger = openai.OpenAI(**{**self.options, "api_key": key or "x"})
            error = self.refused(openai.AuthenticationError, stranger.models.list)
            self.assertEqual(error.code, "invalid_api_key")
        error = self.refused(openai.BadRequestError, self.chat,
                             response_format={"type": "json_object"})
        self.assertEqual((error.param, error.code), ("response_format", "unsupported_parameter"))
        error = self.refused(openai.BadRequestError, self.complete, prompt=[5] * 50000)
        self.assertEqual((error.param, error.code), ("prompt", "context_length_exceeded"))
        self.assertIn("40960", error.message)
        error = self.refused(openai.BadRequestError, self.complete, prompt=[5] * 50000, stream=True)
        self.assertEqual(error.code, "context_length_exceeded")
        error = self.refused(openai.BadRequestError, self.complete, temperature=-1)
        self.assertEqual(error.type, "invalid_request_error")
        error = self.refused(openai.BadRequestError, self.complete, n="two")
        self.assertEqual((error.param, error.code), ("n", "invalid_type"))
        error = self.refused(openai.BadRequestError, self.chat, tool_choice="required")
        self.assertEqual(error.param, "tool_choice")
        error = self.refused(openai.NotFoundError, self.client.models.retrieve, model="a/b")
        self.assertEqual((error.param, error.code), ("model", "model_not_found"))
        self.refused(openai.NotFoundError, self.client.embeddings.create, model="x", input="x")

    def test_timeouts_and_cancellation(self):
        impatient = self.client.with_options(timeout=0.3)
        with self.assertRaises(openai.APITimeoutError):
            impatient.completions.create(model=self.model, prompt=LONG, max_tokens=1)
        self.assertTrue(self.server.is_idle())
        stream = self.complete(max_tokens=30000, stream=True, extra_body={"ignore_eos": True})
        next(iter(stream))
        stream.close()
        self.assertTrue(self.server.is_idle())

    def test_async(self):
        async def run():
            async with openai.AsyncOpenAI(**self.options) as client:
                arguments = {"model": self.model, "messages": QUESTION, "max_tokens": 12,
                             "temperature": 0}
                many = await asyncio.gather(
                    *(client.chat.completions.create(**arguments) for _ in range(8)))
                stream = await client.chat.completions.create(stream=True, **arguments)
                text = "".join([c.choices[0].delta.content or "" async for c in stream])
                # A task that is cancelled takes its request with it.
                task = asyncio.create_task(client.completions.create(
                    model=self.model, prompt=LONG[::-1], max_tokens=1))
                await asyncio.sleep(0.3)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task
                return {one.choices[0].message.content for one in many} | {text}

        self.assertEqual(len(asyncio.run(run())), 1)
        self.assertTrue(self.server.is_idle())

    def test_unfinished_streams_end_with_their_connection(self):
        with httpx.Client(base_url=self.server.url, headers={"Authorization": f"Bearer {KEY}"}) as web:
            with web.stream("POST", "/v1/completions", json={
                    "prompt": "x", "max_tokens": 30000, "ignore_eos": True, "stream": True}) as reply:
                self.assertEqual(reply.headers["content-type"].split(";")[0], "text/event-stream")
                next(reply.iter_lines())
        self.assertTrue(self.server.is_idle())

    def test_langchain(self):
        options = {"model": self.model, "base_url": self.server.url + "/v1", "api_key": KEY,
                   "temperature": 0, "max_tokens": 8}
        chat = ChatOpenAI(stream_usage=True, **options)
        whole = chat.invoke("Who is there?")
        self.assertTrue(whole.content)
        pieces = list(chat.stream("Who is there?"))
        self.assertEqual("".join(p.content for p in pieces), whole.content)
        self.assertGreater(whole.usage_metadata["input_tokens"], 0)
        told = sum(p.usage_metadata["output_tokens"] for p in pieces if p.usage_metadata)
        self.assertEqual(told, whole.usage_metadata["output_tokens"])
        self.assertEqual(asyncio.run(chat.ainvoke("Who is there?")).content, whole.content)
        self.assertTrue(LangChainCompletions(**options).invoke("ROMEO:"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
