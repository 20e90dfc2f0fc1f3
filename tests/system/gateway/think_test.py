#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Thoughts are switched and limited: the prompt that the template makes, the tokens of the answer, the figures.

Small random models, whose templates have Qwen3's switch, none, or one of levels: what they write means nothing, but a
thought begins with it, and ends where it is asked to end."""

import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, refused  # noqa: E402
from gateway import Daemons, Gateway, check, equal, events, make_model  # noqa: E402
from gguf_edit import STR, Gguf  # noqa: E402

TURNS = (
    b"{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor -%}"
    b"<|im_start|>assistant\n"
)
OPENED, CLOSED = b"<think>\n", b"<think>\n\n</think>\n\n"
SWITCH = (
    TURNS
    + b"{%- if enable_thinking is defined and enable_thinking is false %}\n"
    + CLOSED
    + b"{% else %}\n"
    + OPENED
    + b"{% endif -%}"
)
ALWAYS = TURNS + OPENED
LEVELS = b"{{ reasoning_effort | default('medium') }}<think>" + TURNS
USER = [{"role": "user", "content": "Hi"}]
TALK = [{"role": "user", "text": "Hi"}]
END = "\n</think>\n\n"


def bend(plain, path, form):
    m = Gguf(plain)
    m.keys[b"tokenizer.chat_template"] = (STR, form)
    return m.write(path)


def count(model, text):
    out = subprocess.run([os.path.join(BIN, "ntx"), "tokenize", model, "--no-bos"], input=text, capture_output=True)
    return len(json.loads(out.stdout))


def ask(c, think="", n=24, **more):
    """The answer's text, and its statistics; always the same seed, and no end but the limit."""
    a = c.ask(messages=TALK, think=think, max_tokens=n, temp=0.9, seed=3, ignore_eos=True, **more)
    return a.text.decode(), json.loads(a.stats), a


def prompts(c, model):
    """The prompt is the one of the template's switch; without a switch the thought is closed in it."""
    on, _, a = ask(c)
    open_tokens = a.started["prompt_tokens"]
    more = count(model, CLOSED) - count(model, OPENED)
    for think, extra in (
        ("", 0),
        ("on", 0),
        ("auto", 0),
        ("high", 0),
        ("7", 0),
        ("off", more),
        ("none", more),
        ("0", more),
    ):
        text, stats, a = ask(c, think)
        equal(a.started["prompt_tokens"], open_tokens + extra, "tokens of the prompt with think '%s'" % think)
        equal(text.startswith("<think>\n"), not extra, "an answer that begins in a thought, with think '%s'" % think)
        equal(stats["thinking_tokens"] > 0, not extra, "thinking tokens with think '%s'" % think)
    equal(ask(c, "on")[0], on, "the switch's default")
    check("no levels" in ask(c, "high")[2].started["think_note"], "a level that the template lacks is told")
    equal("think_note" in ask(c, "on")[2].started, False, "no note on what works")
    refused(lambda: ask(c, "loud"), "'loud' is none of on, off", "a wrong setting")


def limits(c):
    """After N tokens the end mark comes, and the rest is an answer; before it the bits are those without a limit."""
    free, stats, _ = ask(c)
    equal((stats["thinking_tokens"], "</think>" in free), (24, False), "without a limit")
    for n in (1, 2, 5, 11):
        text, stats, a = ask(c, str(n), n=48)
        head, mark, tail = text.partition(END)
        cut = stats["thinking_tokens"] - n  # a character is not cut in two
        equal((mark, cut in range(4 if n == 11 else 1)), (END, True), "a thought of %d tokens: %r" % (n, text))
        check(tail and free.startswith(head.rstrip("\ufffd")), "its beginning is another", repr(text), repr(free))
        equal(stats["generated_tokens"], 48, "tokens in all")
        again = ask(c, str(n), n=48)[0]
        equal(again, text, "the same again")


def drafts(d, model):
    """Drafts, and a model that streams, change nothing of a limited answer."""
    got = {}
    for what, more in (
        ("plain", dict(draft="off")),
        ("lookup", dict(draft="lookup")),
        ("streamed", dict(draft="off", ram_bytes=24 << 20, ring_slots=4, chunk_bytes=1 << 18)),
    ):
        c = d.client()
        c.load(model, ctx=512, threads=2, **more)
        got[what] = [ask(c, str(n), n=60)[0] for n in (3, 17)] + [ask(c, "off", n=40)[0]]
        c.close()
    equal(got["lookup"], got["plain"], "with drafts")
    equal(got["streamed"], got["plain"], "streamed")


def http(g):
    """Each API, by its own fields."""
    wild = {"temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0}  # many different tokens
    plain = {"messages": USER, "max_tokens": 24, "seed": 3, "ignore_eos": True, **wild}
    free = g.post("/v1/chat/completions", plain)[1]
    equal(free["choices"][0]["message"]["content"], "", "all of it is a thought")
    equal(free["usage"]["completion_tokens_details"], {"reasoning_tokens": 24}, "tokens of the thought")
    for more in (
        {"thinking_budget": 5},
        {"reasoning": {"max_tokens": 5}},
        {"thinking": {"type": "enabled", "budget_tokens": 5}},
    ):
        status, a = g.post("/v1/chat/completions", dict(plain, max_tokens=40, **more))
        m = a["choices"][0]["message"]
        equal((status, a["timings"]["thinking_n"], "ntx" in a), (200, 5, False), more)
        check(
            m["content"]
            and free["choices"][0]["message"]["reasoning_content"].startswith(m["reasoning_content"].rstrip("\ufffd")),
            "cut",
            m,
        )
    for path, body, off in (
        ("/v1/chat/completions", plain, {"chat_template_kwargs": {"enable_thinking": False}}),
        ("/v1/chat/completions", plain, {"reasoning_effort": "none"}),
        ("/v1/messages", {"messages": USER, "max_tokens": 24}, {"thinking": {"type": "disabled"}}),
        ("/api/chat", {"messages": USER, "stream": False, "options": {"num_predict": 24}}, {"think": False}),
        ("/v1/responses", {"input": "Hi", "max_output_tokens": 24}, {"reasoning": {"effort": "none"}}),
    ):
        status, head, text = g.request("POST", path, dict(body, **off))
        equal((status, head.get("warning")), (200, None), (path, off, text))
        check(not re.search(rb'"(reasoning_content|thinking)":"|"type":"(reasoning|thinking)"', text), path, off, text)
    said = [
        json.loads(e)
        for e in events(
            g.request("POST", "/v1/chat/completions", dict(plain, max_tokens=40, thinking_budget=5, stream=True))[2]
        )[:-1]
    ]
    thought = "".join(e["choices"][0]["delta"].get("reasoning_content", "") for e in said)
    content = "".join(e["choices"][0]["delta"].get("content", "") for e in said)
    whole = g.post("/v1/chat/completions", dict(plain, max_tokens=40, thinking_budget=5))[1]["choices"][0]["message"]
    equal((thought, content), (whole["reasoning_content"], whole["content"]), "a stream says what the whole says")
    # a constraint begins after the thought, also where that was ended
    schema = {
        "type": "object",
        "properties": {"a": {"type": "boolean"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"schema": schema}}
    for more, n in (({"thinking_budget": 4}, 4), ({"enable_thinking": False}, 0)):
        a = g.post("/v1/chat/completions", dict(plain, max_tokens=100, ignore_eos=False, response_format=form, **more))[
            1
        ]
        check(type(json.loads(a["choices"][0]["message"]["content"])["a"]) is bool, "an answer of a form", a)
        equal(a["timings"]["thinking_n"], n, "tokens of its thought")


def defaults(d, plain):
    """The load's own setting and template, which requests override."""
    c = d.client()
    c.load(plain, ctx=512, threads=1, think="off", chat_template=SWITCH.decode())
    check(not ask(c)[0].startswith("<think>"), "the default is off")
    check(ask(c, "on")[0].startswith("<think>"), "a request overrides it")
    check(not ask(c, "auto,high")[0].startswith("<think>"), "one that leaves it to the model does not")
    c.load(plain, ctx=512, threads=1, think="6", chat_template=ALWAYS.decode())
    equal(json.loads(ask(c, n=40)[2].stats)["thinking_tokens"], 6, "a default limit")
    text, stats, a = ask(c, "off", n=40)
    equal((text.startswith("<think>"), stats["thinking_tokens"]), (False, 0), "off, where the template always opens")
    refused(lambda: c.load(plain, ctx=512, think="loud"), "think.*none of on, off", "a wrong default")
    refused(lambda: c.load(plain, ctx=512, chat_template="{% if %}"), "chat template.*line 1", "a wrong template")
    refused(lambda: c.load(plain, ctx=512, chat_template="/etc/hostname"), "not its path", "a path")
    c.load(plain, ctx=512, threads=1, chat_template=LEVELS.decode())
    sizes = [ask(c, t)[2].started["prompt_tokens"] for t in ("", "low", "high", "max")]
    equal(sizes[1] < sizes[0] and sizes[2] == sizes[3], True, "levels reach the template: %r" % sizes)
    c.load(plain, ctx=512, threads=1)
    for think, words in (("on", "knows no thoughts"), ("5", "knows no thoughts"), ("off", "")):
        check(words in ask(c, think)[2].started.get("think_note", ""), "a model without thoughts, told of", think)
    c.close()


def command_line(tmp, model, plain):
    def ntx(*args, code=0, stdin=""):
        r = subprocess.run([os.path.join(BIN, "ntx"), *args], input=stdin, capture_output=True, text=True)
        equal(r.returncode, code, "exit code of %r: %s" % (args, r.stderr))
        return r.stdout, r.stderr

    run = ("-n", "16", "--temp", "0", "--ctx", "256", "--ram", "64M", "-t", "1")
    check(ntx("run", model, "Hi", *run)[0].startswith("<think>"), "it thinks")
    check(not ntx("run", model, "Hi", "--think", "off", *run)[0].startswith("<think>"), "--think off")
    check("</think>" in ntx("run", model, "Hi", "--think", "2", *run)[0], "--think 2")
    check("no levels" in ntx("run", model, "Hi", "--think", "low", *run)[1], "--think low is told of")
    form = os.path.join(tmp, "form.jinja")
    with open(form, "wb") as f:
        f.write(ALWAYS)
    check(ntx("run", plain, "Hi", "--chat-template", form, *run)[0].startswith("<think>"), "--chat-template FILE")
    out, err = ntx("run", model, "Hi", "--think", "on,low", *run, "--quiet")
    equal(err, "", "--quiet says nothing of it")


def main():
    with tempfile.TemporaryDirectory(prefix="ntx-think-") as tmp:
        plain = make_model(
            os.path.join(tmp, "plain.gguf"), "--layers", "4", "--embd", "256", "--ff", "512", "--heads", "4", "--kv",
            "2", "--type", "Q8_0", "--seed", "5", "--chat-template", "chatml", "--ctx", "2048",
        )  # fmt: skip
        switch = bend(plain, os.path.join(tmp, "switch.gguf"), SWITCH)
        with Daemons() as d:
            c = d.client()
            c.load(switch, ctx=512, threads=1)
            prompts(c, switch)
            limits(c)
            c.close()
            with Gateway(d) as g:
                http(g)
            drafts(d, switch)
            defaults(d, plain)
        command_line(tmp, switch, plain)


main()
