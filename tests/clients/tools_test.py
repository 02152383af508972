#!/usr/bin/env python3
"""Tools, reasoning and text of any kind, by models that say what the tests want.

    tests/clients/tools_test.py PROGRAM

The official OpenAI client and LangChain against `longspan serve`.
"""
import asyncio
import json
import sys
import tempfile
import unittest

from running_server import Server, use_installed_clients

if __name__ == "__main__":
    use_installed_clients()

import openai  # noqa: E402
from langchain_core.messages import HumanMessage, ToolMessage  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402

import scripted_model  # noqa: E402

PROGRAM = sys.argv[1] if len(sys.argv) > 1 else ""
ARGUMENTS = '{"city": "Köln 😀", "days": [1, 2]}'
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "array"}},
            "required": ["city"],
        },
    },
}
ANSWER = "Es ist schön: 20 °C, 日本 ☀️ — naïve €."
# Shows tools, calls as each model's own template does, and ends with the last message: the cue.
TEMPLATE = """\
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for message in messages %}
{%- if message.tool_calls %}CALLS{% else %}
{{- message.role + ':' + message.content + ';' }}
{%- endif %}
{%- endfor %}
{{- messages[-1].content }}
{%- if opens_thinking %}<think>{% endif %}"""
DEEPSEEK_CALL = "{{ '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>' + NAME_AND_ARGUMENTS + '<｜tool▁call▁end｜>' }}"


def template(call):
    loop = "{% for call in message.tool_calls %}" + call + "{% endfor %}"
    return TEMPLATE.replace("CALLS", loop)


class Format:
    """How one family of models writes calls."""

    def __init__(self, call, text, forced, required, special=()):
        self.template = template(call)
        self.text = text          # two calls
        self.forced = forced      # the cue where a call of `weather` was begun, and what follows
        self.required = required  # the same where any call was
        self.special = special


FORMATS = {
    "hermes": Format(
        "<tool_call>{{ call.function | tojson }}</tool_call>",
        '<tool_call>\n{"name": "weather", "arguments": ' + ARGUMENTS + '}\n</tool_call>\n'
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        (" ", ARGUMENTS + "}\n</tool_call>"),
        ('"', 'weather", "arguments": ' + ARGUMENTS + "}\n</tool_call>"),
    ),
    "llama": Format(
        '{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}',
        '<|python_tag|>{"name": "weather", "parameters": ' + ARGUMENTS + '}; '
        '{"name": "now", "parameters": {}}',
        (" ", ARGUMENTS + "}"),
        ('"', 'weather", "parameters": ' + ARGUMENTS + "}"),
        special=("<|python_tag|>",),
    ),
    "deepseek_v3": Format(
        DEEPSEEK_CALL.replace(
            "NAME_AND_ARGUMENTS",
            "'function<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' + "
            "call.function.arguments + '\\n```'"),
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>weather\n```json\n" + ARGUMENTS
        + "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ("\n", ARGUMENTS + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
        ("<｜tool▁sep｜>", "weather\n```json\n" + ARGUMENTS + "\n```<｜tool▁call▁end｜>"),
    ),
    "deepseek_v31": Format(
        DEEPSEEK_CALL.replace(
            "NAME_AND_ARGUMENTS",
            "call.function.name + '<｜tool▁sep｜>' + call.function.arguments"),
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>weather<｜tool▁sep｜>" + ARGUMENTS +
        "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        ("<｜tool▁sep｜>", ARGUMENTS + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
        ("<｜tool▁call▁begin｜>",
         "weather<｜tool▁sep｜>" + ARGUMENTS + "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
    ),
    "deepseek_v32": Format(
        "<｜DSML｜function_calls>{{ call.function.name }}{{ call.function.arguments | tojson }}",
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="weather">\n'
        '<｜DSML｜parameter name="city" string="true">Köln 😀</｜DSML｜parameter>\n'
        '<｜DSML｜parameter name="days" string="false">[1, 2]</｜DSML｜parameter>\n'
        '</｜DSML｜invoke>\n<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
        ("\n", '<｜DSML｜parameter name="city" string="true">Köln 😀</｜DSML｜parameter>\n'
         '<｜DSML｜parameter name="days" string="false">[1, 2]</｜DSML｜parameter>\n'
         "</｜DSML｜invoke>\n</｜DSML｜function_calls>"),
        ('"', 'weather">\n<｜DSML｜parameter name="city" string="true">Köln 😀</｜DSML｜parameter>\n'
         '<｜DSML｜parameter name="days" string="false">[1, 2]</｜DSML｜parameter>\n</｜DSML｜invoke>'),
    ),
}
CALLED = json.loads(ARGUMENTS)
FEW_PAGES = ["--max-total-tokens", "32768"]


def say(cue):
    return [{"role": "user", "content": cue}]


class ScriptedTest(unittest.TestCase):
    """One model and its server for all tests of a class."""

    format = FORMATS["hermes"]
    seed = 1

    @classmethod
    def setUpClass(cls):
        if cls is ScriptedTest:
            raise unittest.SkipTest("a base")
        cls.folder = tempfile.TemporaryDirectory()
        scripts = {
            "⟦call⟧": cls.format.text,
            "⟦answer⟧": ANSWER,
            "⟦think⟧": "<think>\nHm: zwölf?\n</think>\n\nJa, zwölf.",
            "<think>": "Tief gedacht.</think>Kurz gesagt.",
            cls.format.forced[0]: cls.format.forced[1],
        }
        # The text before a call, which is content.
        if "python_tag" not in cls.format.text:
            scripts["⟦both⟧"] = "Ich sehe nach. " + cls.format.text
        if cls.format.required[0] != cls.format.forced[0]:
            scripts[cls.format.required[0]] = cls.format.required[1]
        path = scripted_model.write(cls.folder.name, scripts, cls.format.template,
                                    cls.format.special, cls.seed)
        cls.server = Server(PROGRAM, "--model-path", str(path), "--served-model-name", "scripted",
                            *FEW_PAGES)
        cls.client = openai.OpenAI(base_url=cls.server.url + "/v1", api_key="none", max_retries=0)
        cls.arguments = {"model": "scripted", "max_tokens": 1000, "temperature": 0}

    @classmethod
    def tearDownClass(cls):
        stopped = cls.server.stop()
        cls.folder.cleanup()
        assert stopped == 0, stopped

    def create(self, cue, **arguments):
        return self.client.chat.completions.create(
            messages=say(cue), **{**self.arguments, **arguments})

    def chat(self, **arguments):
        return ChatOpenAI(model="scripted", base_url=self.server.url + "/v1", api_key="none",
                          temperature=0, max_tokens=1000, max_retries=0, **arguments)


class Calls:
    """What must hold with every format."""

    def check_calls(self, calls, names):
        self.assertEqual([call.function.name for call in calls], names)
        self.assertEqual(json.loads(calls[0].function.arguments), CALLED)
        self.assertEqual(len({call.id for call in calls}), len(calls))

    def test_calls(self):
        reply = self.create("⟦call⟧", tools=[WEATHER], n=2)
        for choice in reply.choices:
            self.assertEqual(choice.finish_reason, "tool_calls")
            self.assertIsNone(choice.message.content)
            self.check_calls(choice.message.tool_calls, ["weather", "now"])

    def test_streamed_calls(self):
        stream = self.create("⟦call⟧", tools=[WEATHER], stream=True)
        deltas = [chunk.choices[0] for chunk in stream]
        self.assertEqual(deltas[-1].finish_reason, "tool_calls")
        parts = [part for delta in deltas for part in delta.delta.tool_calls or []]
        self.assertFalse(any(delta.delta.content for delta in deltas))
        # The name comes first, then the arguments bit by bit.
        self.assertEqual([part.function.name for part in parts if part.id], ["weather", "now"])
        first = [part for part in parts if part.index == 0]
        self.assertGreater(len(first), 2)
        self.assertEqual(json.loads("".join(part.function.arguments for part in first)), CALLED)

    def test_stream_helper(self):
        with self.client.chat.completions.stream(
            messages=say("⟦call⟧"), tools=[WEATHER], **self.arguments
        ) as stream:
            for _ in stream:
                pass
            message = stream.get_final_completion().choices[0].message
        self.check_calls(message.tool_calls, ["weather", "now"])

    def test_choices(self):
        named = {"type": "function", "function": {"name": "weather"}}
        for choice in ("required", named):
            for stream in (False, True):
                with self.subTest(choice=choice, stream=stream):
                    self.check_forced(choice, stream)
        reply = self.create("⟦call⟧", tools=[WEATHER], parallel_tool_calls=False)
        self.check_calls(reply.choices[0].message.tool_calls, ["weather"])
        # With "none" a call is a text like any other.
        reply = self.create("⟦call⟧", tools=[WEATHER], tool_choice="none")
        self.assertIsNone(reply.choices[0].message.tool_calls)
        self.assertIn("weather", reply.choices[0].message.content)

    def check_forced(self, choice, stream):
        reply = self.create("⟦answer⟧", tools=[WEATHER], tool_choice=choice, stream=stream)
        if not stream:
            self.check_calls(reply.choices[0].message.tool_calls, ["weather"])
            return
        parts = [part for chunk in reply for part in chunk.choices[0].delta.tool_calls or []]
        self.assertEqual(parts[0].function.name, "weather")
        self.assertEqual(json.loads("".join(part.function.arguments for part in parts)), CALLED)

    def test_content_before_a_call(self):
        if "python_tag" in self.format.text:
            return
        reply = self.create("⟦both⟧", tools=[WEATHER])
        self.assertEqual(reply.choices[0].message.content, "Ich sehe nach.")
        self.check_calls(reply.choices[0].message.tool_calls, ["weather", "now"])

    def test_an_answer_without_a_call(self):
        reply = self.create("⟦answer⟧", tools=[WEATHER])
        self.assertEqual(reply.choices[0].message.content, ANSWER)
        self.assertEqual(reply.choices[0].finish_reason, "stop")

    def test_a_turn_with_langchain(self):
        model = self.chat().bind_tools([WEATHER])
        question = HumanMessage("⟦call⟧")
        for call in (model.invoke([question]), sum_of(model.stream([question]))):
            self.assertEqual([c["name"] for c in call.tool_calls], ["weather", "now"])
            self.assertEqual(call.tool_calls[0]["args"], CALLED)
            results = [ToolMessage("20", tool_call_id=call.tool_calls[0]["id"]),
                       ToolMessage("⟦answer⟧", tool_call_id=call.tool_calls[1]["id"])]
            self.assertEqual(model.invoke([question, call, *results]).content, ANSWER)


def sum_of(chunks):
    total = None
    for chunk in chunks:
        total = chunk if total is None else total + chunk
    return total


class HermesTest(Calls, ScriptedTest):
    def test_reasoning(self):
        message = self.create("⟦think⟧").choices[0].message
        self.assertEqual(message.content, "Ja, zwölf.")
        self.assertEqual(message.reasoning_content, "\nHm: zwölf?")
        deltas = [chunk.choices[0].delta for chunk in self.create("⟦think⟧", stream=True)]
        reasoning = [getattr(delta, "reasoning_content", None) or "" for delta in deltas]
        self.assertGreater(sum(bool(part) for part in reasoning), 3)
        self.assertEqual("".join(reasoning), message.reasoning_content)
        self.assertEqual("".join(delta.content or "" for delta in deltas), message.content)
        usage = self.create("⟦think⟧").usage
        self.assertGreater(usage.completion_tokens_details.reasoning_tokens, 3)

    def test_templates_that_open_the_think_block(self):
        opens = {"chat_template_kwargs": {"opens_thinking": True}}
        message = self.create("x", extra_body=opens).choices[0].message
        self.assertEqual(message.reasoning_content, "Tief gedacht.")
        self.assertEqual(message.content, "Kurz gesagt.")
        together = self.create("x", extra_body={**opens, "separate_reasoning": False})
        self.assertEqual(together.choices[0].message.content, "Tief gedacht.</think>Kurz gesagt.")

    def test_structured_output_and_async_with_langchain(self):
        model = self.chat()
        found = model.with_structured_output(WEATHER, method="function_calling")
        self.assertEqual(found.invoke("⟦answer⟧"), CALLED)

        async def run():
            whole = await model.ainvoke("⟦answer⟧")
            pieces = [piece.content async for piece in model.astream("⟦answer⟧")]
            many = await model.abatch(["⟦answer⟧"] * 5)
            return whole.content, "".join(pieces), [one.content for one in many]

        whole, streamed, many = asyncio.run(run())
        self.assertEqual([whole, streamed, *many], [ANSWER] * 7)


class LlamaTest(Calls, ScriptedTest):
    format = FORMATS["llama"]


class DeepSeekV3Test(Calls, ScriptedTest):
    format = FORMATS["deepseek_v3"]


class DeepSeekV31Test(Calls, ScriptedTest):
    format = FORMATS["deepseek_v31"]


class DeepSeekV32Test(Calls, ScriptedTest):
    format = FORMATS["deepseek_v32"]


class TextTest(ScriptedTest):
    """Every way of cutting a text that is not ASCII into tokens and events."""

    def test_text_at_every_split(self):
        for seed in range(8):
            with tempfile.TemporaryDirectory() as folder:
                scripts = {"⟦answer⟧": ANSWER}
                scripted_model.write(folder, scripts, self.format.template, seed=seed)
                server = Server(PROGRAM, "--model-path", folder, *FEW_PAGES)
                try:
                    self.check_text(server)
                finally:
                    self.assertEqual(server.stop(), 0)

    def check_text(self, server):
        request = {"prompt": "⟦answer⟧", "max_tokens": 1000, "temperature": 0}
        whole = server.post("/v1/completions", request)
        self.assertEqual(whole["choices"][0]["text"], ANSWER)
        events = server.stream("/v1/completions", request)
        texts = [event["choices"][0]["text"] for event in events]
        self.assertEqual("".join(texts), ANSWER)
        self.assertFalse(any("\ufffd" in text for text in texts))
        native = {"text": "⟦answer⟧", "sampling_params": {"max_new_tokens": 1000, "temperature": 0}}
        texts = [event["text"] for event in server.stream("/generate", native)]
        for text in texts:
            self.assertTrue(ANSWER.startswith(text), text)
        self.assertEqual(texts[-1], ANSWER)
        ids = server.post("/generate", native)["output_ids"]
        self.assertEqual(whole["usage"]["completion_tokens"], len(ids))
        # Cut off anywhere: whole characters, then at most one sign for what is missing.
        for tokens in range(1, len(ids)):
            text = server.post("/v1/completions", {**request, "max_tokens": tokens})
            text = text["choices"][0]["text"]
            self.assertTrue(ANSWER.startswith(text.rstrip("\ufffd")), text)
            self.assertLessEqual(text.count("\ufffd"), 1)
        # Stop strings, whatever tokens they lie in.
        for begin in range(len(ANSWER)):
            stop = ANSWER[begin:begin + 1 + begin % 4]
            self.check_stop(server, request, stop, stream=begin % 2 == 0)

    def check_stop(self, server, request, stop, stream):
        request = {**request, "stop": ["never", stop]}
        expected = ANSWER[:ANSWER.index(stop)]
        if stream:
            events = server.stream("/v1/completions", request)
            text = "".join(event["choices"][0]["text"] for event in events)
            choice = events[-1]["choices"][0]
        else:
            choice = server.post("/v1/completions", request)["choices"][0]
            text = choice["text"]
        self.assertEqual(text, expected, stop)
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertEqual(choice["matched_stop"], stop)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
