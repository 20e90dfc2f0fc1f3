#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Requests that were reported to fail on local servers (field/*.json, each with its public source): every one gets an
answer of the right form from a model, under templates of several kinds, and names exactly what is not followed."""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, check, equal, make_model  # noqa: E402
from gguf_edit import STR, Gguf  # noqa: E402

FIELD = os.path.join(os.environ["NTX_SOURCE"], "tests", "system", "gateway", "field")
TURN = b"<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
TEMPLATES = {
    "any order": b"{% for t in tools or [] %}{{ t | tojson }}<tool_call>\n{% endfor %}{% for m in messages %}" + TURN
    + b"{% endfor %}<|im_start|>assistant\n",
    "turns": b"{%- if messages[0].role == 'system' -%}{%- set rest = messages[1:] -%}{%- else -%}"
    b"{%- set rest = messages -%}{%- endif -%}{%- for m in rest -%}{%- if (m.role == 'user') != (loop.index0 % 2 == 0) "
    b"-%}{{ raise_exception('user and assistant have to take turns') }}{%- endif -%}" + TURN
    + b"{% endfor %}<|im_start|>assistant\n",
    "no system": b"{%- for m in messages -%}{%- if m.role == 'system' -%}{{ raise_exception('no system role here') }}"
    b"{%- endif -%}" + TURN + b"{% endfor %}<|im_start|>assistant\n",
}  # fmt: skip
SHAPE = ["--layers", "2", "--embd", "64", "--ff", "128", "--heads", "2", "--kv", "1", "--seed", "5", "--ctx", "2048"]


def cases():
    all = {}
    for name in sorted(os.listdir(FIELD)):
        with open(os.path.join(FIELD, name)) as f:
            all[name[: -len(".json")]] = json.load(f)
    return all


def text_of(path, j):
    """The answer's text, calls and thoughts together: the form is that of the path's API, or this fails."""
    if path.startswith("/v1/messages"):
        equal((j["type"], j["role"]), ("message", "assistant"), j)
        return "".join(b.get("text", b.get("thinking", "")) or json.dumps(b.get("input", "")) for b in j["content"])
    if path == "/v1/responses":
        equal(j["object"], "response", j)
        return json.dumps(j["output"])
    if path == "/v1/chat/completions":
        m = j["choices"][0]["message"]
        return (m.get("content") or "") + json.dumps(m.get("tool_calls", ""))
    equal(j["done"], True, j)
    return j["message"]["content"] if "message" in j else j["response"]


def holds(name, r, text):
    """Whether the answer keeps to the schema, by the words of each keyword that the cases have."""
    try:
        j = json.loads(text)
    except ValueError:
        check(False, name, "the answer is no JSON:", text)
    if name == "schema-decimal":
        check(isinstance(j["price"], (int, float)) or any(c.isdigit() for c in j["price"]), name, j)
    elif name == "schema-set":
        check(all(isinstance(x, str) for x in j["s"]), name, j)
    else:
        check(abs(j["cost"] * 100 - round(j["cost"] * 100)) < 1e-6 * max(1, abs(j["cost"])), name, j)
        check(all(k.isalpha() and len(k) <= 4 and isinstance(v, int) for k, v in j["by"].items()), name, j)
        check("note" in j, name, j)


def one(g, name, r, template):
    status, head, body = g.request("POST", r["path"], r["body"])
    what = "%s (%s): %s" % (name, template, body[:500])
    equal(status, 200, what)
    j = json.loads(body)
    if r.get("loads"):
        equal((j["done"], j["done_reason"], text_of(r["path"], j)), (True, "load", ""), what)
        return
    said = text_of(r["path"], j)
    notes = j.get("ntx", {})
    if template != "no system":  # a template without a word for thoughts or tools reports them, too
        left = set(notes.get("ignored", [])) - {"thinking", "output_config.effort", "reasoning.effort"}
        equal(left, set(r["ignored"]), what)
    for item in r["ignored"]:
        check(item in head.get("warning", ""), what, head)
    if "unenforced" in r:
        equal([u["keyword"] for u in notes.get("unenforced", [])], r["unenforced"], what)
        done = j["done_reason"] == "stop"
        if done:
            holds(name, r, said)
        return done
    return None


def main():
    all = cases()
    whole = set()
    with tempfile.TemporaryDirectory(prefix="ntx-field-") as tmp:
        plain = make_model(os.path.join(tmp, "plain.gguf"), *SHAPE, "--chat-template", "chatml")
        for template, text in TEMPLATES.items():
            bent = Gguf(plain)
            bent.keys[b"tokenizer.chat_template"] = (STR, text)
            model = bent.write(os.path.join(tmp, template.replace(" ", "-") + ".gguf"))
            with Daemons() as d, Gateway(d) as g:
                c = d.client()
                c.load(model, ctx=1024, threads=1)
                c.close()
                for name, r in all.items():
                    if one(g, name, r, template):
                        whole.add(name)
    check("schema-decimal" in whole, "no answer under a schema came to its end", whole)
    print("%d requests were answered under %d templates; whole: %s" % (len(all), len(TEMPLATES), sorted(whole)))


main()
