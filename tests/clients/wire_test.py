#!/usr/bin/env python3
"""What clients read from the wire, and the examples that users paste. Python's own library alone.

    tests/clients/wire_test.py PROGRAM
"""
import http.client
import json
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

from running_server import PYTHON, ROOT, Server

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""
PROMPT = "ROMEO: What say you, naïve 日本 😀?"


class WireTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(PROGRAM, "--max-total-tokens", "65536", "--served-model-name", "tiny")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0


class BenchmarkClientTest(WireTest):
    """The steps of sglang.bench_serving, vllm bench serve and their like."""

    def events(self, path, body):
        """Reads as they do: every line is an event, its prefix is cut, an empty one is skipped."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port)
        headers = {"Content-Type": "application/json", "Authorization": "Bearer ",
                   "X-SMG-Routing-Key": "1"}
        connection.request("POST", path, json.dumps(body), headers)
        reply = connection.getresponse()
        self.assertEqual(reply.status, 200)
        events = []
        for line in reply:
            line = line.strip().decode()
            if not line:
                continue
            chunk = line.removeprefix("data: ")
            events.append(None if chunk == "[DONE]" else json.loads(chunk))
        connection.close()
        self.assertIsNone(events.pop())
        self.assertNotIn(None, events)
        return events

    def test_start_and_end(self):
        model = json.loads(self.server.get("/v1/models"))["data"][0]
        self.assertEqual(model["object"], "model")
        info = json.loads(self.server.get("/model_info"))
        self.assertTrue((pathlib.Path(info["tokenizer_path"]) / "tokenizer.json").exists())
        self.assertEqual(info["model_path"], info["tokenizer_path"])
        for path in ("/flush_cache?timeout=60", "/reset_prefix_cache"):
            with self.server.request(path, {}) as reply:
                self.assertEqual(reply.status, 200)
        state = json.loads(self.server.get("/server_info"))
        self.assertIsInstance(state["internal_states"], list)
        self.assertIn("last_gen_throughput", state["internal_states"][0])

    def test_native(self):
        events = self.events("/generate", {
            "text": PROMPT,
            "sampling_params": {"temperature": 0.0, "max_new_tokens": 40, "ignore_eos": True},
            "stream": True, "lora_path": None, "return_logprob": False,
            "return_routed_experts": False, "logprob_start_len": -1,
        })
        text, tokens = "", 0
        for event in events:
            self.assertTrue(event["text"].startswith(text))  # cumulative
            text = event["text"]
            self.assertGreaterEqual(event["meta_info"]["completion_tokens"], tokens)
            tokens = event["meta_info"]["completion_tokens"]
            self.assertIn("cached_tokens", event["meta_info"])
        self.assertEqual(tokens, 40)
        self.assertGreater(len(events), 20)  # one token an event, for latencies between tokens
        self.assertEqual(events[-1]["meta_info"]["finish_reason"], {"type": "length", "length": 40})

    def test_completions(self):
        events = self.events("/v1/completions", {
            "model": "tiny", "prompt": PROMPT, "best_of": 1, "temperature": 0.0, "max_tokens": 40,
            "stream": True, "ignore_eos": True, "logprobs": None, "repetition_penalty": 1.0,
            "no_such_field": {"x": 1},
        })
        self.assertTrue(all(isinstance(event["choices"][0]["text"], str) for event in events))
        self.assertGreater(len(events), 20)
        events = self.events("/v1/completions", {
            "model": "tiny", "prompt": PROMPT, "max_tokens": 40, "stream": True, "ignore_eos": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        })
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 40)
        self.assertEqual(events[0]["usage"]["prompt_tokens"], events[-1]["usage"]["prompt_tokens"])

    def test_chat(self):
        request = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}],
                   "temperature": 0.0, "max_completion_tokens": 40, "ignore_eos": True}
        events = self.events("/v1/chat/completions", {
            **request, "stream": True, "stream_options": {"include_usage": True}})
        for event in events[:-1]:
            self.assertIn("delta", event["choices"][0])
            self.assertIsNone(event["usage"])
        self.assertEqual(events[-1]["choices"], [])
        self.assertEqual(events[-1]["usage"]["completion_tokens"], 40)
        whole = self.server.post("/v1/chat/completions", request)
        text = "".join(event["choices"][0]["delta"].get("content") or "" for event in events[:-1])
        self.assertEqual(whole["choices"][0]["message"]["content"], text)
        self.assertEqual(whole["usage"]["completion_tokens"], 40)

    def test_batches_of_the_native_endpoint(self):
        params = {"temperature": 0, "max_new_tokens": 5, "ignore_eos": True}
        request = {"text": ["To be", "ROMEO:"], "sampling_params": params}
        whole = self.server.post("/generate", request)
        self.assertEqual([one["meta_info"]["completion_tokens"] for one in whole], [5, 5])
        last = {}
        for event in self.events("/generate", {**request, "stream": True}):
            last[event["index"]] = event["text"]
        self.assertEqual([last[0], last[1]], [one["text"] for one in whole])
        params = {**params, "n": 2, "temperature": 1, "seed": 3}
        twice = self.server.post("/generate", {"text": "To be", "sampling_params": params})
        self.assertEqual(len(twice), 2)

    def test_a_silent_native_stream_lives_by_events_that_clients_take(self):
        server = Server(PROGRAM, "--sse-comment-interval", "0.02", "--chunked-prefill-size", "64",
                        "--max-total-tokens", "32768", "--threads", "1")
        try:
            ids = [3 + i * 7 % 900 for i in range(3000)]
            events = server.stream("/generate", {
                "input_ids": ids, "sampling_params": {"max_new_tokens": 1, "ignore_eos": True}})
            silent = [event for event in events if event["meta_info"]["completion_tokens"] == 0]
            self.assertTrue(silent)
            self.assertTrue(all(event["text"] == "" for event in silent))
            # On the others it is a comment.
            with server.request("/v1/completions", {
                    "prompt": ids[::-1], "max_tokens": 1, "stream": True}) as reply:
                self.assertTrue(reply.readline().startswith(b": "))
        finally:
            self.assertEqual(server.stop(), 0)


class AnswersTest(WireTest):
    """What the other suites leave out of the endpoints."""

    def complete(self, **request):
        return self.server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 6, **request})

    def test_echo_with_logprobs(self):
        greedy = {"temperature": 0, "ignore_eos": True, "logprobs": 2}
        reply = self.complete(echo=True, **greedy)
        choice = reply["choices"][0]
        logprobs = choice["logprobs"]
        count = reply["usage"]["prompt_tokens"]
        self.assertEqual(len(logprobs["tokens"]), count + 6)
        self.assertIsNone(logprobs["token_logprobs"][0])
        self.assertIsNone(logprobs["top_logprobs"][0])
        self.assertTrue(all(value <= 0 for value in logprobs["token_logprobs"][1:]))
        for best, value in zip(logprobs["top_logprobs"][1:], logprobs["token_logprobs"][1:]):
            self.assertEqual(len(best), 2)
            self.assertGreaterEqual(max(best.values()) + 1e-4, value)
        for token, offset in zip(logprobs["tokens"], logprobs["text_offset"]):
            if not token.startswith("bytes:"):
                self.assertEqual(choice["text"][offset:offset + len(token)], token)
        # The output's own are those of a request without echo.
        plain = self.complete(**greedy)["choices"][0]
        self.assertEqual(choice["text"], PROMPT + plain["text"])
        for a, b in zip(logprobs["token_logprobs"][count:], plain["logprobs"]["token_logprobs"]):
            self.assertAlmostEqual(a, b, places=3)
        # Nor do they depend on how they are asked for.
        for stream in self.server.stream("/v1/completions", {
                "prompt": PROMPT, "max_tokens": 6, "echo": True, **greedy})[:1]:
            streamed = stream["choices"][0]["logprobs"]
            self.assertEqual(streamed["tokens"], logprobs["tokens"][:count + 1])
            self.assertEqual(streamed["text_offset"], logprobs["text_offset"][:count + 1])
        scored = self.complete(echo=True, logprobs=0, max_tokens=0, n=2)
        for choice in scored["choices"]:
            self.assertEqual(choice["text"], PROMPT)
            self.assertEqual(len(choice["logprobs"]["tokens"]), count)
            for a, b in zip(choice["logprobs"]["token_logprobs"][1:],
                            logprobs["token_logprobs"][1:]):
                self.assertAlmostEqual(a, b, places=3)
        native = self.server.post("/generate", {
            "text": PROMPT, "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 2,
            "sampling_params": {"max_new_tokens": 1}})["meta_info"]
        self.assertEqual(len(native["input_token_logprobs"]), count)
        self.assertIsNone(native["input_token_logprobs"][0][0])
        self.assertAlmostEqual(native["input_token_logprobs"][3][0],
                               logprobs["token_logprobs"][3], places=3)
        self.assertEqual(len(native["input_top_logprobs"][1]), 2)

    def test_the_score_command_agrees(self):
        ids = self.server.post("/tokenize", {"prompt": PROMPT})["tokens"]
        path = ROOT / "build" / "score_ids.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(ids))
        scored = json.loads(subprocess.run(
            [PROGRAM, "score", "--ids-file", str(path), "--dtype", "f32", "--json"],
            check=True, capture_output=True).stdout)["logprobs"]
        path.unlink()
        reply = self.complete(prompt=ids, echo=True, logprobs=0, max_tokens=0)
        for a, b in zip(scored, reply["choices"][0]["logprobs"]["token_logprobs"]):
            if a is None:
                self.assertIsNone(b)
            else:
                self.assertAlmostEqual(a, b, places=3)

    def test_streams_of_several_choices(self):
        request = {"n": 3, "seed": 5, "temperature": 1, "ignore_eos": True}
        whole = [choice["text"] for choice in self.complete(**request)["choices"]]
        texts = ["", "", ""]
        reasons = [None] * 3
        for event in self.server.stream("/v1/completions",
                                        {"prompt": PROMPT, "max_tokens": 6, **request}):
            choice = event["choices"][0]
            texts[choice["index"]] += choice["text"]
            reasons[choice["index"]] = choice["finish_reason"]
        self.assertEqual(texts, whole)
        self.assertEqual(reasons, ["length"] * 3)
        self.assertEqual(len(set(texts)), 3)

    def test_penalties_and_biases(self):
        plain = self.complete(temperature=0, max_tokens=60, ignore_eos=True)
        text = plain["choices"][0]["text"]
        for penalty in ({"frequency_penalty": 2}, {"presence_penalty": 2},
                        {"repetition_penalty": 3}):
            changed = self.complete(temperature=0, max_tokens=60, ignore_eos=True, **penalty)
            self.assertNotEqual(changed["choices"][0]["text"], text, penalty)
        token = self.server.post("/tokenize", {"prompt": "!"})["tokens"][0]
        biased = self.complete(logit_bias={str(token): 100}, ignore_eos=True)
        self.assertEqual(biased["choices"][0]["text"], "!!!!!!")

    def test_null_and_default_values_pass(self):
        nothing = {name: None for name in (
            "suffix", "logprobs", "stop", "seed", "logit_bias", "user", "n", "echo", "best_of",
            "stream", "stream_options", "temperature", "top_p", "top_k", "min_p",
            "frequency_penalty", "presence_penalty", "repetition_penalty", "response_format",
            "lora_path", "guided_json", "rid")}
        self.complete(**nothing)
        self.complete(**{
            "suffix": "", "stop": [], "logit_bias": {}, "n": 1, "echo": False, "best_of": 1,
            "stream": False, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "frequency_penalty": 0,
            "presence_penalty": 0.0, "repetition_penalty": 1, "use_beam_search": False,
            "response_format": {"type": "text"}, "min_tokens": 0, "length_penalty": 1,
            "stream_options": {"include_usage": True}, "store": False})
        chat = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        self.server.post("/v1/chat/completions", {
            **chat, "tools": None, "tool_choice": None, "functions": None, "audio": None,
            "modalities": ["text"], "logprobs": False, "top_logprobs": 0, "max_tokens": None,
            "max_completion_tokens": 1, "parallel_tool_calls": True, "metadata": {"a": "b"},
            "service_tier": "auto", "reasoning_effort": None, "prediction": None})

    def test_what_is_not_supported_is_refused_by_name(self):
        document = json.loads(self.server.get("/openapi.json"))
        requests = {
            "/v1/completions": ("CompletionRequest", {"prompt": "x", "max_tokens": 1}),
            "/v1/chat/completions": ("ChatCompletionRequest", {
                "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}),
            "/generate": ("GenerateRequest", {"text": "x"}),
        }
        for path, (schema, body) in requests.items():
            properties = document["components"]["schemas"][schema]["properties"]
            refused = [name for name, about in properties.items() if "x-unsupported" in about]
            self.assertGreater(len(refused), 10)
            for name in refused:
                status, error = self.server.refusal(path, {**body, name: {"x": [1]}})
                self.assertEqual((status, error["param"]), (400, name))
                self.assertEqual(error["code"], "unsupported_parameter")
                self.assertIn(f"'{name}'", error["message"])
                with self.server.request(path, {**body, name: None}) as reply:
                    reply.read()

    def test_usage_is_the_tokenizers(self):
        for text in ("To be, or not to be", "Größe 日本語 😀 naïve", " \n\t ", "<|im_end|>x", "ß"):
            ids = self.server.post("/tokenize", {"prompt": text})["tokens"]
            usage = self.complete(prompt=text, max_tokens=3, ignore_eos=True)["usage"]
            self.assertEqual(usage["prompt_tokens"], len(ids))
            self.assertEqual(usage["completion_tokens"], 3)
            self.assertEqual(usage["total_tokens"], len(ids) + 3)
            self.assertEqual(self.complete(prompt=ids)["usage"]["prompt_tokens"], len(ids))
            back = self.server.post("/detokenize", {"tokens": ids, "skip_special_tokens": False})
            self.assertEqual(back["text"], text)
            messages = [{"role": "user", "content": text}]
            count = self.server.post("/tokenize", {"messages": messages})["count"]
            chat = self.server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
            self.assertEqual(chat["usage"]["prompt_tokens"], count)
        batch = self.complete(prompt=["To be", "ROMEO:"], n=2)["usage"]
        counts = self.server.post("/tokenize", {"prompt": ["To be", "ROMEO:"]})["count"]
        self.assertEqual(batch["prompt_tokens"], sum(counts))
        self.assertLessEqual(batch["completion_tokens"], 4 * 6)

    def test_progress(self):
        ids = [3 + i * 7 % 900 for i in range(3000)]
        for path, body in {
            "/v1/completions": {"prompt": ids, "max_tokens": 1},
            "/generate": {"input_ids": ids[::-1], "sampling_params": {"max_new_tokens": 1}},
        }.items():
            events = self.server.stream(path, {
                **body, "stream_options": {"include_progress": True}})
            reports = [e["prompt_progress"] for e in events if "prompt_progress" in e]
            self.assertGreater(len(reports), 3)
            self.assertEqual(reports[-1]["processed"], 3000)
            self.assertEqual(reports[-1]["time_left_ms"], 0)
            self.assertTrue(all(r["total"] == 3000 and r["cached"] == 0 for r in reports))
            self.assertGreater(reports[2]["time_left_ms"], 0)

    def test_limits_are_told(self):
        for path, body in {
            "/v1/completions": {"prompt": [5] * 41000},
            "/generate": {"input_ids": [5] * 41000},
            "/v1/chat/completions": {"messages": [{"role": "user", "content": "é" * 41000}]},
        }.items():
            status, error = self.server.refusal(path, body)
            self.assertEqual((status, error["code"]), (400, "context_length_exceeded"))
            self.assertIn("40960", error["message"])
        # How long a chat is can be asked for all the same.
        long_chat = {"messages": [{"role": "user", "content": "é" * 41000}]}
        self.assertGreater(self.server.post("/tokenize", long_chat)["count"], 41000)

    def test_aborts_by_the_requests_own_id(self):
        for path, body in {
            "/v1/completions": {"prompt": "x", "max_tokens": 30000},
            "/generate": {"text": "x", "sampling_params": {"max_new_tokens": 30000,
                                                           "ignore_eos": True}},
        }.items():
            with self.server.request(path, {
                    **body, "rid": "mine", "ignore_eos": True, "stream": True}) as reply:
                reply.readline()
                self.assertEqual(self.server.post("/abort_request", {"rid": "mine"}),
                                 {"aborted": 1})
                events = [line for line in reply.read().decode().split("\n\n") if line]
            self.assertEqual(events[-1], "data: [DONE]")
            self.assertIn("abort", events[-2])
        self.assertTrue(self.server.is_idle())


class ExamplesTest(WireTest):
    """The commands of README.md and docs/serving.md that begin with curl, as they stand there."""

    def test_they_work(self):
        if shutil.which("curl") is None:
            self.skipTest("there is no curl")
        count = 0
        for page in ("README.md", "docs/serving.md"):
            text = (ROOT / page).read_text()
            for command in re.findall(r"```sh\n(curl .*?)```", text, re.DOTALL):
                self.check(command)
                count += 1
        self.assertGreaterEqual(count, 8)

    def check(self, command):
        self.assertIn(":30000/", command)
        command = command.replace(":30000/", f":{self.server.port}/")
        done = subprocess.run(["sh", "-c", command], capture_output=True, timeout=60)
        output = done.stdout.decode()
        self.assertEqual(done.returncode, 0, command)
        self.assertNotIn('"error"', output, command)
        if "/health" in command:
            return
        self.assertTrue(output, command)
        if '"stream": true' in command:
            self.assertTrue(output.endswith("data: [DONE]\n\n"), output)
        elif "/metrics" not in command and "/flush_cache" not in command:
            json.loads(output)

    def test_the_python_of_the_page_works(self):
        text = (ROOT / "docs" / "serving.md").read_text()
        examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
        self.assertEqual(len(examples), 2)
        for example in examples:
            compile(example, "docs/serving.md", "exec")
            if not PYTHON.exists():
                continue  # without the packages that it imports
            example = example.replace(":30000/", f":{self.server.port}/")
            done = subprocess.run([PYTHON, "-c", example], capture_output=True, timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertTrue(done.stdout.strip())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
