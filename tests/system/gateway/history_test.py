#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What ntx answered is taken back as history, in each of the four families of APIs: whole or as a stream that the
client joined, cut anywhere, with thoughts and calls, and also where a model writes the marks of both in any order. In
ntx-computed's place stands a server of the tests. NTX_LONG writes fifty times as many of those."""

import itertools
import json
import os
import random
import sys
import tempfile

from computed import Computed

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Gateway, check, equal, events  # noqa: E402

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
FUNCTION = {"name": "weather", "description": "of a city", "parameters": SCHEMA}
TOOL = {"type": "function", "function": FUNCTION}
ARGUMENTS = '{"city": "Oslo", "days": [1, 2], "exact": true}'
DS, LOW, DSML = ("<\uff5c%s\uff5c>", "\u2581", "\uff5cDSML\uff5c")
mark = lambda words: DS % words.replace("_", LOW)  # noqa: E731
CALLS = {  # each format's form of a call of the tool
    "hermes": '<tool_call>\n{"name": "weather", "arguments": %s}\n</tool_call>\n' % ARGUMENTS,
    "plain": '{"name": "weather", "arguments": %s}\n' % ARGUMENTS,
    "llama-3": '<|python_tag|>{"name": "weather", "parameters": %s}' % ARGUMENTS,
    "mistral": "[TOOL_CALLS]weather[ARGS]" + ARGUMENTS,
    "qwen3-coder": "<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n[1, 2]\n"
    "</parameter>\n</function>\n</tool_call>\n",
    "glm": "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Oslo</arg_value>\n</tool_call>\n",
    "kimi": "<|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>%s<|tool_call_end|>" % ARGUMENTS,
    "minimax": '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Oslo</parameter>\n</invoke>\n'
    "</minimax:tool_call>",
    "deepseek": mark("tool_call_begin") + "weather" + mark("tool_sep") + ARGUMENTS + mark("tool_call_end"),
    "harmony": "<|start|>assistant<|channel|>commentary to=functions.weather <|constrain|>json<|message|>%s<|call|>"
    % ARGUMENTS,
}


def said(format):
    """Answers of a model in this format."""
    call = CALLS[format]
    if format == "harmony":
        think, text = "<|channel|>analysis<|message|>Hm.<|end|>", "<|start|>assistant<|channel|>final<|message|>Sunny."
    else:
        think, text = "[THINK]Hm.[/THINK]" if format == "mistral" else "<think>\nHm.\n</think>\n\n", "Let me see.\n"
    return [text, think + text, think + call, text + call, think + text + call + call]


def jumbled(format, rng):
    """Pieces of such answers in any order, as a model that is lost writes them."""
    whole = said(format)[-1] + said("plain")[-1] + "\u00e9\U0001f600 {\"name\": \"other\"}\n```json\n```\n</think>"
    cuts = [sorted(rng.sample(range(len(whole) + 1), 2)) for _ in range(rng.randrange(1, 7))]
    return "".join(whole[a:b] for a, b in cuts)


# ---- each API: a request, the message of its answer, the same of a stream, and the turn that follows


def sse(body):
    datas = [e if isinstance(e, str) else e[1] for e in events(body)]
    return [json.loads(d) for d in datas if d != "[DONE]"]


def members(text):
    """The object, or the whole members of one that was cut, as SDKs read it."""
    for end in ("", "}"):
        for n in range(len(text), 0, -1) if end else (len(text),):
            try:
                if not end or text[n - 1] in '{"]}el' or text[n:].lstrip()[:1] == ",":
                    return json.loads(text[:n] + end)
            except ValueError:
                pass
    return {}


class Chat:
    path, stream = "/v1/chat/completions", True
    thinks = {"reasoning_effort": "low"}

    def ask(self, talk):
        return {"messages": talk, "tools": [TOOL]}

    def first(self, text):
        return [{"role": "user", "content": text}]

    def whole(self, answer):
        return answer["choices"][0]["message"]

    def joined(self, body):
        """By OpenAI's rules: texts of one key are joined, calls by their index."""
        m, calls = {}, {}
        for e in sse(body):
            for c in e["choices"]:
                for key, v in c["delta"].items():
                    if key != "tool_calls" and v is not None:
                        m[key] = v if key == "role" else m.get(key, "") + v
                for one in c["delta"].get("tool_calls", []):
                    to = calls.setdefault(
                        one["index"], {"id": "", "type": "", "function": {"name": "", "arguments": ""}}
                    )
                    to["id"] += one.get("id", "")
                    to["type"] = one.get("type", to["type"])
                    for key in ("name", "arguments"):
                        to["function"][key] += one["function"].get(key, "")
        m.setdefault("content", None)
        return dict(m, tool_calls=[calls[i] for i in sorted(calls)]) if calls else m

    def plain(self, m):
        """What the message says, without ids."""
        calls = [c["function"] for c in m.get("tool_calls", [])]
        return m.get("content") or "", m.get("reasoning_content", ""), calls

    def after(self, m):
        results = [{"role": "tool", "tool_call_id": c["id"], "content": "rain"} for c in m.get("tool_calls", [])]
        return [m] + results + [{"role": "user", "content": "So?"}]


class Ollama(Chat):
    path = "/api/chat"
    thinks = {"think": True}

    def whole(self, answer):
        return answer["message"]

    def joined(self, body):
        m = {"role": "assistant", "content": ""}
        for line in body.splitlines():
            part = json.loads(line)["message"]
            m["content"] += part["content"]
            if "thinking" in part:
                m["thinking"] = m.get("thinking", "") + part["thinking"]
            if "tool_calls" in part:
                m["tool_calls"] = m.get("tool_calls", []) + part["tool_calls"]
        return m

    def plain(self, m):
        return m["content"], m.get("thinking", ""), [c["function"] for c in m.get("tool_calls", [])]

    def after(self, m):
        results = [{"role": "tool", "tool_name": "weather", "content": "rain"} for c in m.get("tool_calls", [])]
        return [m] + results + [{"role": "user", "content": "So?"}]


class Messages:
    path = "/v1/messages"
    thinks = {"thinking": {"type": "adaptive"}}

    def ask(self, talk):
        tool = {"name": "weather", "description": "of a city", "input_schema": SCHEMA}
        return {"messages": talk, "tools": [tool], "max_tokens": 99}

    def first(self, text):
        return [{"role": "user", "content": text}]

    def whole(self, answer):
        return {"role": "assistant", "content": answer["content"]}

    def joined(self, body):
        blocks, texts = {}, {}
        for e in sse(body):
            if e["type"] == "content_block_start":
                blocks[e["index"]], texts[e["index"]] = dict(e["content_block"]), ""
            elif e["type"] == "content_block_delta":
                d = e["delta"]
                if d["type"] == "input_json_delta":
                    texts[e["index"]] += d["partial_json"]
                elif d["type"] in ("text_delta", "thinking_delta"):
                    key = d["type"].split("_")[0]
                    blocks[e["index"]][key] += d[key]
        for i, b in blocks.items():
            if b["type"] == "tool_use":
                b["input"] = members(texts[i])
        return {"role": "assistant", "content": [blocks[i] for i in sorted(blocks)]}

    def plain(self, m):
        texts = ["".join(b.get(key, "") for b in m["content"]) for key in ("text", "thinking")]
        calls = [{"name": b["name"], "arguments": b["input"]} for b in m["content"] if b["type"] == "tool_use"]
        return texts[0], texts[1], calls

    def after(self, m):
        ids = [b["id"] for b in m["content"] if b["type"] == "tool_use"]
        results = [{"type": "tool_result", "tool_use_id": i, "content": "rain"} for i in ids]
        return [m, {"role": "user", "content": results + [{"type": "text", "text": "So?"}]}]


class Responses:
    path = "/v1/responses"
    thinks = {"reasoning": {"effort": "low", "summary": "auto"}}

    def ask(self, talk):
        return {"input": talk, "tools": [dict(FUNCTION, type="function")]}

    def first(self, text):
        return [{"role": "user", "content": text}]

    def whole(self, answer):
        return answer["output"]

    def joined(self, body):
        return [e["item"] for e in sse(body) if e["type"] == "response.output_item.done"]

    def plain(self, items):
        text = "".join(p["text"] for i in items if i["type"] == "message" for p in i["content"])
        thought = "".join(p["text"] for i in items if i["type"] == "reasoning" for p in i.get("content", []))
        calls = [{k: i[k] for k in ("name", "arguments")} for i in items if i["type"] == "function_call"]
        return text, thought, calls

    def after(self, items):
        ids = [i["call_id"] for i in items if i["type"] == "function_call"]
        results = [{"type": "function_call_output", "call_id": i, "output": "rain"} for i in ids]
        return items + results + [{"role": "user", "content": "So?"}]


APIS = (Chat(), Ollama(), Messages(), Responses())


def ask(g, api, talk, stream, more=None):
    status, _, body = g.request("POST", api.path, dict(api.ask(talk), stream=stream, **(more or {})))
    equal(status, 200, "%s: %s %s" % (api.path, body[:400], json.dumps(talk)[:2000]))
    return body


def roles(c):
    return [m["role"] for m in c.request["messages"]]


def echoes(c, g):
    """Any answer, cut at any length: a stream says the same as the whole, and both are taken back by every API."""
    rng = random.Random(53)
    for c.format in CALLS:
        for text in said(c.format):
            cuts = sorted(rng.sample(range(len(text)), min(len(text), 4))) + [len(text)]
            for n, api in itertools.product(cuts, APIS):
                c.text, c.step = text[:n], rng.choice((1, 3, 7, 1000))
                c.done = {"finish": "stop" if n == len(text) else "length"}
                talk = api.first("Weather?")
                whole = api.whole(json.loads(ask(g, api, talk, False)))
                joined = api.joined(ask(g, api, talk, True))
                what = "%s %s: %r" % (api.path, c.format, c.text)
                equal(api.plain(joined), api.plain(whole), what)
                said_, thought, calls = api.plain(whole)
                if n == len(text):
                    equal(len(calls), text.count(CALLS[c.format]), what)
                for m in (whole, joined):
                    ask(g, api, talk + api.after(m), rng.random() < 0.5)
                    sent = [json.loads(m.get("fields", b"{}")) for m in c.request["messages"]]
                    got = [k["function"] for f in sent for k in f.get("tool_calls", [])]
                    equal([k["name"] for k in got], [k["name"] for k in calls], what)
                    check(all(isinstance(k["arguments"], dict) for k in got), what, got)
                    check(roles(c)[-1] == "user" and roles(c).count("tool") == len(calls), what, roles(c))


def jumbles(c, g):
    """Whatever the model writes, under tools and thoughts: a stream says the same, and every API takes it back."""
    rng = random.Random(7)
    for c.format in CALLS:
        for _ in range(150 if os.environ.get("NTX_LONG") else 2):
            c.text, c.step = jumbled(c.format, rng), rng.choice((1, 2, 5, 1000))
            c.done = {"finish": rng.choice(("stop", "length"))}
            for api in APIS:
                more, talk = api.thinks if rng.random() < 0.7 else {}, api.first("Weather?")
                whole = api.whole(json.loads(ask(g, api, talk, False, more)))
                joined = api.joined(ask(g, api, talk, True, more))
                equal(api.plain(joined), api.plain(whole), "%s %s: %r" % (api.path, c.format, c.text))
                for m in (whole, joined):
                    ask(g, api, talk + api.after(m), rng.random() < 0.5, more)


def forms(c, g):
    """Histories as clients write them."""
    c.text, c.format, c.done = "Yes.", "hermes", {"finish": "stop"}
    user = {"role": "user", "content": "Weather?"}

    def chat(*messages, **more):
        status, head, body = g.request("POST", "/v1/chat/completions", {"messages": list(messages), **more})
        equal(status, 200, body[:300])
        sent = [json.loads(m.get("fields", b"{}")) for m in c.request["messages"]]
        return head.get("warning", ""), sent, c.request["messages"]

    part = '{"city": "Oslo", "days": [1, 2'
    for text, want, lost in (
        ("", {}, False),
        (" ", {}, False),
        ("null", {}, False),
        (None, {}, False),
        ("[]", {}, False),
        ([], {}, False),
        ('""', {}, False),
        ('{"city', {}, True),
        ('{"city": "Oslo', {}, True),
        (part, {"city": "Oslo"}, True),
        ("{'city': 'Oslo'}", {}, True),
        ('"x"', {}, True),
        (7, {}, True),
        ('{"a": 1, "a": 2}', {"a": 2}, False),
        ('{"a": 123456789012345678901234567890}', {"a": 123456789012345678901234567890.0}, False),
        ('{"a":' + "[" * 2000 + "]" * 2000 + "}", {}, True),
        (ARGUMENTS, json.loads(ARGUMENTS), False),
        (json.loads(ARGUMENTS), json.loads(ARGUMENTS), False),
    ):
        call = {"id": None, "function": {"name": "f", "arguments": text}}
        answer = {"role": "assistant", "content": None, "tool_calls": [call]}
        warning, sent, _ = chat(user, answer, {"role": "tool", "tool_call_id": None, "content": None})
        equal(sent[1], {"tool_calls": [{"type": "function", "function": {"name": "f", "arguments": want}}]}, text)
        equal("messages.tool_calls.arguments" in warning, lost, (text, warning))
    call = {"function": {"name": "f"}}  # no arguments
    equal(chat(user, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "content": ""})[0], "", "absent")
    older = {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": '{"a": 1}'}}
    warning, sent, messages = chat(user, older, {"role": "function", "name": "f", "content": "rain"})
    made = [{"type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]
    equal((warning, sent[1:]), ("", [{"tool_calls": made}, {"name": "f"}]), "an older form of calls")
    equal([m["role"] for m in messages], ["user", "assistant", "tool"], "a function's result")
    for none in ({}, {"content": None}, {"content": ""}, {"content": []}, {"content": None, "tool_calls": []}):
        messages = chat(user, {"role": "assistant", **none}, user)[2]
        equal([m.get("text", b"") for m in messages], [b"Weather?", b"", b"Weather?"], none)
    sent = chat({"role": "system", "content": "x", "name": "s"}, dict(user, name="Ann"))[1]
    equal(sent, [{"name": "s"}, {"name": "Ann"}], "names")
    for stop, want in (([""], []), ("", []), (["", "x"], ["x"])):
        chat(user, stop=stop)
        equal(c.request.get("stop", []), want, "stop %r" % stop)
    items = [
        user,
        {"type": "reasoning", "id": None, "summary": [], "content": None, "encrypted_content": None},
        {"type": "function_call", "id": None, "call_id": "c1", "name": "f", "arguments": "", "status": "incomplete"},
        {"type": "function_call_output", "id": None, "call_id": "c1", "output": "rain"},
    ]
    status, e = g.post("/v1/responses", {"input": items})
    equal((status, roles(c)), (200, ["user", "assistant", "tool"]), e)


def one_call(c, g):
    c.format, c.text, c.done = "hermes", 2 * CALLS["plain"], {"finish": "stop"}
    body = {"messages": [{"role": "user", "content": "Weather?"}], "tools": [TOOL]}
    for more, n in (({}, 2), ({"parallel_tool_calls": False}, 1), ({"tools": None}, 0)):
        m = g.post("/v1/chat/completions", {**body, **more})[1]["choices"][0]["message"]
        equal(len(m.get("tool_calls", [])), n, more)
    body = {**Messages().ask(body["messages"]), "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    equal([b["type"] for b in g.post("/v1/messages", body)[1]["content"]], ["tool_use"], "one block")
    json_only = {"response_format": {"type": "json_object"}, "tools": [TOOL]}
    c.text = CALLS["plain"]
    m = g.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], **json_only})[1]
    check("tool_calls" not in m["choices"][0]["message"], "a JSON answer is no call", m)


with tempfile.TemporaryDirectory(prefix="ntx-gateway-") as dir:
    c = Computed(dir)
    with Gateway(c) as g:
        forms(c, g)
        one_call(c, g)
        echoes(c, g)
        jumbles(c, g)
