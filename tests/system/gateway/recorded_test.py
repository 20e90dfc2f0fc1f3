#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests in the shapes that clients send (clients/*.json, each with the public source of its shape): every one is
answered, as a stream and whole; its functions come to the model, and no other tools; what it asks of thoughts does;
and the answer names exactly the members that ntx does not follow."""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from computed import Computed  # noqa: E402
from gateway import Daemons, Gateway, check, equal, events, make_model  # noqa: E402
from gguf_edit import STR, Gguf  # noqa: E402

CLIENTS = os.path.join(os.environ["NTX_SOURCE"], "tests", "system", "gateway", "clients")
NEEDED = {  # by their files' names, up to the first dash but one
    "aider",
    "claude-code",
    "cline",
    "codex",
    "continue",
    "goose",
    "home-assistant",
    "librechat",
    "n8n",
    "open-webui",
    "opencode",
    "sillytavern",
    "zed",
}
FORM = (  # ChatML with Hermes' calls and Qwen3's switch
    b"{%- if tools %}<|im_start|>system\n{% for t in tools %}{{ t | tojson }}\n{% endfor %}<tool_call><|im_end|>\n"
    b"{% endif %}{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls or [] %}"
    b"<tool_call>{{ c | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor -%}<|im_start|>assistant\n"
    b"{%- if enable_thinking is defined and enable_thinking is false %}\n<think>\n\n</think>\n\n{% else %}\n<think>\n"
    b"{% endif -%}"
)


def recorded():
    all = {}
    for name in sorted(os.listdir(CLIENTS)):
        with open(os.path.join(CLIENTS, name)) as f:
            all[name[: -len(".json")]] = json.load(f)
    return all


def bodies(r):
    """The request as it was sent, and the other way: a stream or whole."""
    default = r["path"].startswith("/api/")
    streams = r["body"].get("stream", default)
    yield streams, r["body"]
    other = dict(r["body"], stream=not streams)
    if streams:
        other.pop("stream_options", None)
    yield not streams, other


def reported(head):
    warning = head.get("warning", "")
    if not warning:
        return set()
    check(warning.startswith('299 ntx "ignored: ') and warning.endswith('"'), "the Warning header", warning)
    return set(warning[len('299 ntx "ignored: ') : -1].split(", "))


def as_asked(c, g, name, r):
    """What the request comes to at ntx-computed, and what is reported of it."""
    c.names, c.thinking = ["enable_thinking"], {"thinks": True, "switch": True, "levels": ["low", "medium", "high"]}
    for streams, body in bodies(r):
        status, head, text = g.request("POST", r["path"], body)
        equal(status, 200, "%s, %s: %s" % (name, "a stream" if streams else "whole", text[:500]))
        equal(reported(head), set(r["ignored"]), "%s: what is not followed" % name)
        asked = json.loads(c.request.get("variables", b"") or b"{}")
        tools = [t["function"]["name"] for t in asked.get("tools", [])]
        equal((tools, c.request.get("think", "")), (r["tools"], r["think"]), "%s: tools and thoughts" % name)
        for m in c.request.get("messages", []):
            check(m["role"] in ("system", "user", "assistant", "tool"), name, m)
        if not streams and r["ignored"]:
            equal(set(json.loads(text)["ntx"]["ignored"]), set(r["ignored"]), "%s: ntx.ignored" % name)


def written(path, streams, text):
    """Whether the answer has a text, a thought or a call, and its length in tokens."""
    path = path.split("?")[0]
    if path == "/api/chat":
        last = json.loads(text.decode().splitlines()[-1])
        return last["eval_count"]
    if not streams:
        u = json.loads(text)["usage"]
        return u.get("completion_tokens", u.get("output_tokens"))
    said = [e[1] if isinstance(e, tuple) else e for e in events(text)]
    if path == "/v1/messages":
        return json.loads(said[-2])["usage"]["output_tokens"]
    if path == "/v1/responses":
        return json.loads(said[-1])["response"]["usage"]["output_tokens"]
    return len([e for e in said if e != "[DONE]" and json.loads(e)["choices"]])


def by_a_model(d, g, name, r):
    """A model answers it, with its template, its tools and its constraint."""
    limit = next((k for k in ("max_tokens", "max_completion_tokens", "max_output_tokens") if r["body"].get(k)), None)
    if limit is None:
        limit = "max_output_tokens" if r["path"] == "/v1/responses" else "max_tokens"
    for streams, body in bodies(r):
        short = dict(body)
        if r["path"] == "/api/chat":
            short["options"] = dict(body["options"], num_predict=6)
        else:
            short[limit] = 6
        status, head, text = g.request("POST", r["path"], short)
        equal(status, 200, "%s, by a model: %s" % (name, text[:500]))
        check(written(r["path"], streams, text) >= 1, name, "has no answer", text[-500:])


def main():
    all = recorded()
    equal({n for n in NEEDED if n not in all}, set(), "clients without a request")
    with tempfile.TemporaryDirectory(prefix="ntx-recorded-") as tmp:
        c = Computed(tmp)
        c.text = "ok"
        with Gateway(c) as g:
            for name, r in all.items():
                as_asked(c, g, name, r)
        plain = make_model(
            os.path.join(tmp, "plain.gguf"), "--layers", "2", "--embd", "64", "--ff", "128", "--heads", "2", "--kv",
            "1", "--seed", "5", "--chat-template", "chatml", "--ctx", "8192",
        )  # fmt: skip
        bent = Gguf(plain)
        bent.keys[b"tokenizer.chat_template"] = (STR, FORM)
        model = bent.write(os.path.join(tmp, "m.gguf"))
        with Daemons() as d, Gateway(d) as g:
            c = d.client()
            c.load(model, ctx=4096, threads=1)
            c.close()
            for name, r in all.items():
                by_a_model(d, g, name, r)
    print("%d requests were answered, each as a stream and whole" % len(all))


main()
