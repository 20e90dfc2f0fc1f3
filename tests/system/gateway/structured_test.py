#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""JSON answers, by every API; token probabilities, compared with the logits; and logit biases."""

import json
import math
import os
import re
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, Watch, check, equal, events, make_model  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-structured-")
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
    "--chat-template",
    "chatml",
    "--layers",
    "2",
    "--embd",
    "64",
    "--ff",
    "96",
    "--heads",
    "4",
    "--kv",
    "2",
    "--seed",
    "5",
)
HELLO = [{"role": "user", "content": "Hello"}]
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 1, "maximum": 30}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}}


def person(text, what):
    v = json.loads(text)
    check(
        list(v) == ["name", "age"] and len(v["name"]) <= 8 and type(v["age"]) is int and 1 <= v["age"] <= 30, what, text
    )


def formats(g):
    for seed in range(3):
        code, r = g.post(
            "/v1/chat/completions", {"messages": HELLO, "response_format": FORMAT, "temperature": 1, "seed": seed}
        )
        equal(code, 200, r)
        equal(r["choices"][0]["finish_reason"], "stop", "a whole person")
        person(r["choices"][0]["message"]["content"], "json_schema")
        said = [
            json.loads(e)["choices"][0]["delta"].get("content", "")
            for e in events(
                g.request(
                    "POST",
                    "/v1/chat/completions",
                    {"messages": HELLO, "response_format": FORMAT, "temperature": 1, "seed": seed, "stream": True},
                )[2]
            )[:-1]
        ]
        equal("".join(said), r["choices"][0]["message"]["content"], "a stream")
    r = g.post(
        "/v1/chat/completions", {"messages": HELLO, "response_format": FORMAT, "temperature": 1, "n": 3, "seed": 0}
    )[1]["choices"]
    for c in r:
        person(c["message"]["content"], "one of three")
    person(
        g.post("/api/chat", {"messages": HELLO, "format": SCHEMA, "stream": False})[1]["message"]["content"],
        "Ollama's format",
    )
    person(
        g.post(
            "/v1/responses",
            {"input": "Hello", "text": {"format": {"type": "json_schema", "name": "p", "schema": SCHEMA}}},
        )[1]["output"][-1]["content"][0]["text"],
        "Responses' format",
    )
    for pattern, strict, param, words in (
        ("^([a-z]{0,4000}){0,4000}$", False, None, "grammar is too ambiguous"),
        ("a{5,2}", True, "response_format", "no quantifier"),
    ):
        watch = Watch()
        status, e = g.post(
            "/v1/chat/completions",
            {
                "messages": HELLO,
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "p", "strict": strict, "schema": {"type": "string", "pattern": pattern}},
                },
            },
        )
        check(
            status == 400
            and e["error"]["code"] is None
            and e["error"]["param"] == param
            and words in e["error"]["message"],
            pattern,
            status,
            e,
        )
        check(watch.took() < 5, pattern, "took", watch.took())
    text = g.post(
        "/v1/chat/completions",
        {"messages": HELLO, "response_format": {"type": "json_object"}, "temperature": 0, "max_tokens": 300},
    )[1]["choices"][0]
    check(text["message"]["content"].startswith("{"), text)
    if text["finish_reason"] == "stop":
        check(isinstance(json.loads(text["message"]["content"]), dict), text)


SET = {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 2}, "uniqueItems": True, "maxItems": 4}
DRAWS = {"type": "object", "properties": {"s": SET}, "required": ["s"], "additionalProperties": False}
LEFT_OUT = {"keyword": "uniqueItems", "at": "#/properties/s"}


def says(ntx, text):
    """The answer names the keyword that was left out, and whether it keeps to it."""
    drawn = json.loads(text)["s"]
    kept = len(set(drawn)) == len(drawn)
    equal(ntx["unenforced"], [LEFT_OUT], ntx)
    equal(ntx["kept"], kept, (ntx, text))
    equal("broken" in ntx, not kept, ntx)
    return kept


def left_out(g):
    """A schema that an automaton cannot enforce whole: the closest one is, unless it is strict."""
    schema = {"name": "d", "schema": DRAWS}
    ask = {"messages": HELLO, "temperature": 1, "response_format": {"type": "json_schema", "json_schema": schema}}
    results = set()
    for seed in range(8):
        code, headers, body = g.request("POST", "/v1/chat/completions", dict(ask, seed=seed))
        equal(code, 200, body)
        r = json.loads(body)
        results.add(says(r["ntx"], r["choices"][0]["message"]["content"]))
        check("not enforced: uniqueItems at #/properties/s" in str(headers), headers)
    equal(results, {True, False}, "some answers keep to it")
    sent = [json.loads(e) for e in events(g.request("POST", "/v1/chat/completions", dict(ask, stream=True))[2])[:-1]]
    says(sent[-1]["ntx"], "".join(e["choices"][0]["delta"].get("content", "") for e in sent))
    code, r = g.post("/api/chat", {"messages": HELLO, "format": DRAWS, "stream": False})
    says(r["ntx"], r["message"]["content"])
    schema["strict"] = True
    code, r = g.post("/v1/chat/completions", ask)
    check(code == 400 and "'uniqueItems'" in r["error"]["message"], r)
    check("(at #/properties/s)" in r["error"]["message"], r)


def calls_left_out(g):
    draw = {"type": "function", "function": {"name": "draw", "parameters": DRAWS}}
    plain = {"type": "function", "function": {"name": "plain", "parameters": SCHEMA}}
    ask = {"messages": HELLO, "tools": [plain, draw], "tool_choice": {"type": "function", "function": {"name": "draw"}}}
    code, r = g.post("/v1/chat/completions", dict(ask, seed=1, max_tokens=400))
    equal(code, 200, r)
    equal(r["ntx"]["unenforced"], [dict(LEFT_OUT, tool="draw")], r)
    draw["function"]["strict"] = True
    code, r = g.post("/v1/chat/completions", ask)
    check(code == 400 and "the tool 'draw'" in r["error"]["message"], r)
    check("'uniqueItems'" in r["error"]["message"] and "(at #/properties/s)" in r["error"]["message"], r)


def probabilities(d, g):
    prompt, n = [5, 9, 12], 4
    ask = {"prompt": prompt, "max_tokens": n, "temperature": 0, "logprobs": 3, "ignore_eos": True}
    c = d.client()
    ids = []
    code, r = g.post("/v1/completions", ask)
    equal(code, 200, r)
    told = r["choices"][0]["logprobs"]
    equal((len(told["tokens"]), [len(t) for t in told["top_logprobs"]]), (n, [3] * n), "as many as were asked for")
    for i in range(n):
        row = c.logits(prompt + ids)[-1]
        logits = struct.unpack("<%df" % (len(row) // 4), row)
        top = max(logits)
        total = math.log(sum(math.exp(x - top) for x in logits)) + top
        ids.append(logits.index(top))
        check(abs(told["token_logprobs"][i] - (top - total)) < 1e-5, i, told["token_logprobs"][i], top - total)
        want = sorted((x - total for x in logits), reverse=True)[:3]
        got = sorted(told["top_logprobs"][i].values(), reverse=True)
        check(all(abs(a - b) < 1e-5 for a, b in zip(want, got)), i, want, got)
    c.close()
    ask = {
        "messages": HELLO,
        "max_tokens": 5,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 2,
        "ignore_eos": True,
    }
    whole = g.post("/v1/chat/completions", ask)[1]["choices"][0]["logprobs"]["content"]
    check(
        len(whole) == 5
        and all(
            len(t["top_logprobs"]) == 2
            and t["top_logprobs"][0]["logprob"] == t["logprob"]
            and bytes(t["bytes"]).decode(errors="replace") == t["token"]
            for t in whole
        ),
        whole,
    )
    parts = [
        json.loads(e)["choices"][0]["logprobs"]
        for e in events(g.request("POST", "/v1/chat/completions", dict(ask, stream=True))[2])[:-1]
    ]
    equal([t for p in parts if p for t in p["content"]], whole, "those of a stream")
    return ids


def biases(g, ids):
    ask = {"prompt": [5, 9, 12], "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    plain = g.post("/v1/completions", ask)[1]["choices"][0]["text"]
    other = g.post("/v1/completions", dict(ask, logit_bias={str(ids[0]): -100}))[1]["choices"][0]["text"]
    check(plain != other, "a bias that forbids", plain)
    told = g.post("/v1/completions", dict(ask, logit_bias={"40": 100}, logprobs=1))[1]["choices"][0]["logprobs"]
    equal(len(set(told["tokens"])), 1, "a bias that forces")
    equal(
        g.post("/v1/completions", dict(ask, logit_bias={"40": 0}))[1]["choices"][0]["text"], plain, "a bias of nothing"
    )


def calls(g, thinks):
    """A model with random weights must write a call in its own form where one is required.

    It may write several where several are allowed, and writes JSON where JSON is required.
    """
    tools = [
        {
            "type": "function",
            "function": {
                "name": n,
                "parameters": dict(
                    SCHEMA, properties=dict(SCHEMA["properties"], kind={"enum": [n]}), required=["name", "age", "kind"]
                ),
            },
        }
        for n in ("ask", "tell")
    ]
    called = written = 0
    for seed in range(4):
        for choice, parallel in (
            ("required", False),
            ("required", True),
            ({"type": "function", "function": {"name": "tell"}}, False),
        ):
            ask = {
                "messages": HELLO,
                "tools": tools,
                "tool_choice": choice,
                "parallel_tool_calls": parallel,
                "temperature": 1,
                "seed": seed,
                "max_tokens": 400,
            }
            code, r = g.post("/v1/chat/completions", ask)
            equal(code, 200, r)
            r = r["choices"][0]
            if thinks and r["finish_reason"] == "length":  # a thought may be as long as it likes
                continue
            equal(r["finish_reason"], "tool_calls", r)
            called += 1
            made = [c["function"] for c in r["message"]["tool_calls"]]
            check(len(made) == 1 or parallel, made)
            for c in made:
                v = json.loads(c["arguments"])
                check(c["name"] == "tell" or choice == "required", choice, c)
                check(v.pop("kind") == c["name"], c)
                person(json.dumps(v), "arguments")
            told = [
                json.loads(e)["choices"][0]["delta"]
                for e in events(g.request("POST", "/v1/chat/completions", dict(ask, stream=True))[2])[:-1]
            ]
            equal([c["function"] for t in told for c in t.get("tool_calls", [])], made, "those of a stream")
        r = g.post(
            "/v1/chat/completions",
            {"messages": HELLO, "response_format": FORMAT, "temperature": 1, "seed": seed, "max_tokens": 400},
        )[1]["choices"][0]
        if not (thinks and r["finish_reason"] == "length"):
            person(r["message"]["content"], "json_schema")
            written += 1
    check(called > 3 and written, "whole answers:", called, written)


def memory(d, g):
    """A refusal for memory names the smallest --ram that has room.

    With it the same request is answered; with less it is refused and names the same number.
    """
    big = make_model(
        os.path.join(tmp.name, "big.gguf"),
        "--chat-template",
        "chatml",
        "--layers",
        "2",
        "--embd",
        "64",
        "--ff",
        "96",
        "--heads",
        "4",
        "--kv",
        "2",
        "--seed",
        "5",
        "--vocab-size",
        "32000",
    )
    many = {
        "type": "json_schema",
        "json_schema": {
            "name": "many",
            "strict": True,
            "schema": {"enum": ["%019d" % (i * 7919) for i in range(3000)]},
        },
    }

    def ask(mib, form):
        c = d.client()
        c.load(big, ram_bytes=mib << 20, ctx=128, threads=1, sessions=1)
        c.close()
        code, r = g.post("/v1/chat/completions", {"messages": HELLO, "response_format": form, "max_tokens": 4})
        named = re.search(r"--ram (\d+)M or more$", r.get("error", {}).get("message", ""))
        equal(code, 400 if named else 200, r)
        return int(named[1]) if named else 0

    for what, form, few in (
        ("the vocabulary", FORMAT, 16),
        ("a large schema, without any room", many, 16),
        ("a large schema", many, 40),
    ):
        want = ask(few, form)
        check(want > few, what, want)
        equal(ask(want, form), 0, "%s, with --ram %dM" % (what, want))
        equal(ask(want - 1, form), want, "%s, with 1 MiB less than %d" % (what, want))


def main():
    with Daemons() as d, Gateway(d) as g:
        c = d.client()
        c.load(model, ram_bytes=256 << 20, ctx=512, sessions=4)
        c.close()
        formats(g)
        left_out(g)
        biases(g, probabilities(d, g))
        for template in ("harmony",):
            other = make_model(
                os.path.join(tmp.name, template + ".gguf"),
                "--chat-template",
                template,
                "--layers",
                "2",
                "--embd",
                "64",
                "--ff",
                "96",
                "--heads",
                "4",
                "--kv",
                "2",
                "--seed",
                "6",
            )
            c = d.client()
            c.load(other, ram_bytes=256 << 20, ctx=1024, sessions=4)
            c.close()
            calls(g, template == "harmony")
            calls_left_out(g)
        memory(d, g)


main()
