"""Recomputes the expected texts of this folder with Jinja2 itself (pip install jinja2).

conversations.jsonl: one {"template", "bos", "eos", "request", "text"} a line; text is null where Jinja2 fails.
snippets.jsonl: the request of all snippets, then one [template, text or null] a line.
To add a case, append a line with any text and run this script.
"""

import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

FOLDER = pathlib.Path(__file__).parent


class Generation(jinja2.ext.Extension):
    """{% generation %}, which transformers uses to find an assistant's tokens; it only prints its body."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_print")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def environment():
    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda text: datetime.datetime.now().strftime(text)
    return env


def render(env, source, request, bos="", eos=""):
    tokens = {name: text for name, text in (("bos_token", bos), ("eos_token", eos)) if text}
    try:
        return env.from_string(source).render(
            messages=request["messages"], tools=request.get("tools"), documents=None,
            add_generation_prompt=request.get("add_generation_prompt", True), **tokens,
            **request.get("kwargs", {}))
    except Exception:  # whatever it is, the engine must fail, too
        return None


def dump(value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for invisible in "\x7f\xa0\u200b\u2028":
        text = text.replace(invisible, f"\\u{ord(invisible):04x}")
    return text + "\n"


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def main():
    env = environment()
    path = FOLDER / "conversations.jsonl"
    cases = lines(path)
    for case in cases:
        source = (FOLDER / "templates" / f"{case['template']}.jinja").read_text(encoding="utf-8")
        case["text"] = render(env, source, case["request"], case["bos"], case["eos"])
    path.write_text("".join(map(dump, cases)), encoding="utf-8")
    path = FOLDER / "snippets.jsonl"
    request, *snippets = lines(path)
    done = [[source, render(env, source, request)] for source, _ in snippets]
    path.write_text("".join(map(dump, [request, *done])), encoding="utf-8")


if __name__ == "__main__":
    main()
