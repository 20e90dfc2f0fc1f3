#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An agent's session of 20 turns in Claude Code's shape (a billing block that changes with each request, a template
that writes the time, a long system block, tools, calls with results, our own answers sent back): of the tokens that an
ideal cache would have, which knows each earlier prompt and answer, at least 95 % come from the prefix cache.

With a file as argument it measures that model instead of a tiny one; with "dated" behind it under the test's template,
which writes the time, in place of its own."""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, check, equal, make_model  # noqa: E402
from gguf_edit import STR, Gguf  # noqa: E402

TURNS, CTX = 20, 8192
FORM = (  # ChatML with Hermes' calls, as Qwen2.5 has it; and a clock, as other templates have a date
    b"{%- if tools %}<|im_start|>system\nIt is {{ strftime_now('%H:%M:%S') }}.\n"
    b"{{ messages[0].content }}\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}"
    b"<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n{% endif %}"
    b"{%- for m in messages %}{% if not (loop.first and tools) %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    b"{% for c in m.tool_calls or [] %}{% if m.content or not loop.first %}\n{% endif %}<tool_call>\n{\"name\": \""
    b"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}"
    b"\n</tool_call>{% endfor %}<|im_end|>\n"
    b"{% endif %}{% endfor %}<|im_start|>assistant\n"
)


def tool(name, *fields):
    schema = {"type": "object", "properties": {f: {"enum": ["a", "b", "c"]} for f in fields}, "required": list(fields)}
    return {"name": name, "description": "Works with %s of a project." % name, "input_schema": schema}


TOOLS = [tool("Read", "file"), tool("Grep", "pattern", "path"), tool("Bash", "command"), tool("Edit", "file", "text")]


def body(turn, talk):
    bill = "x-anthropic-billing-header: cc_version=2.1.2.%03x; cc_entrypoint=cli; cch=%05x;" % (turn * 37, turn * 7919)
    rules = " ".join("Rule %d: keep file %d tidy." % (i, i) for i in range(60))
    return {
        "system": [{"type": "text", "text": bill}, {"type": "text", "text": rules}],
        "tools": TOOLS,
        "messages": talk,
        "max_tokens": 24,
        "seed": turn,
        "tool_choice": {"type": "any" if turn % 3 else "auto"},
        "metadata": {"user_id": "u%d" % turn},
    }


def session(ask):
    """(cached tokens, those of an ideal cache, those of all prompts)"""
    talk = [{"role": "user", "content": "Mend the build of file 7."}]
    cached = ideal = prompts = known = 0  # known: of the last prompt and its answer
    for turn in range(TURNS):
        said = ask(body(turn, talk))
        use = said["usage"]
        prompt = use["input_tokens"] + use["cache_read_input_tokens"]
        cached += use["cache_read_input_tokens"] if turn else 0
        ideal += known
        prompts += prompt
        known = prompt + use["output_tokens"]
        ids = [b["id"] for b in said["content"] if b["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": i, "content": "line %d of it\n" % turn * 3} for i in ids]
        talk += [{"role": "assistant", "content": said["content"]}]
        talk += [{"role": "user", "content": results or [{"type": "text", "text": "Go on with part %d." % turn}]}]
    return cached, ideal, prompts


def measure(d, model, **more):
    c = d.client(300)
    c.load(model, ctx=CTX, sessions=2, threads=2, **more)
    c.close()
    with Gateway(d) as g:

        def ask(q):
            status, said = g.post("/v1/messages", q)
            equal(status, 200, said)
            return said

        return session(ask)


with tempfile.TemporaryDirectory(prefix="ntx-session-") as tmp, Daemons() as d:
    model = sys.argv[1] if len(sys.argv) > 1 else None
    if not model:
        plain = make_model(
            os.path.join(tmp, "plain.gguf"), "--layers", "2", "--embd", "64", "--ff", "128", "--heads", "2", "--kv",
            "1", "--seed", "5", "--vocab-size", "2400", "--chat-template", "chatml", "--ctx", str(CTX),
        )  # fmt: skip
        bent = Gguf(plain)
        bent.keys[b"tokenizer.chat_template"] = (STR, FORM)
        model = bent.write(os.path.join(tmp, "m.gguf"))
    dated = {"chat_template": FORM.decode()} if "dated" in sys.argv[2:] else {}
    cached, ideal, prompts = measure(d, model, **dated)
    print("%d of %d prompt tokens cached; an ideal cache: %d" % (cached, prompts, ideal))
    check(cached >= 0.95 * ideal, "cached", cached, "of", ideal)
