#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tools over HTTP: what ntx-computed gets for the model's template, and what each API makes of a model's calls.

In ntx-computed's place stands a server of this test, which writes what it is told to, in pieces of every length.
"""

import json
import os
import re
import socket
import sys
import tempfile

from computed import Computed

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Gateway, check, equal, events, patience  # noqa: E402

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "weather", "description": "of a city", "parameters": SCHEMA}}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Gra\u00df"}}\n</tool_call>'
HELLO = [{"role": "user", "content": "Weather?"}]


def allowed(c, g, ask):
    """Of the tools that the prompt shows, only those that tool_choice allows may be called."""
    other = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
    both = dict(ask, tools=[TOOL, other, {"type": "web_search"}])
    clock = {"type": "function", "function": {"name": "clock"}}
    flat = [dict(t["function"], type="function") for t in (TOOL, other)]
    for mode in ("auto", "required"):
        inner = {"mode": mode, "tools": [clock, {"type": "web_search"}]}
        for path, body in (
            ("/v1/chat/completions", dict(both, tool_choice={"type": "allowed_tools", "allowed_tools": inner})),
            (
                "/v1/responses",
                {
                    "input": "a",
                    "tools": flat,
                    "tool_choice": {
                        "type": "allowed_tools",
                        "mode": mode,
                        "tools": [{"type": "function", "name": "clock"}],
                    },
                },
            ),
        ):
            status, said = g.post(path, body)
            equal(status, 200, said)
            must = json.loads(c.request["constraint"]["text"])
            equal(
                (
                    [t["function"]["name"] for t in must["tools"]],
                    must["choice"],
                    c.request["constraint"].get("soft", 0),
                ),
                (["clock"], mode, 0),
                "calls",
            )
            shown = json.loads(c.request["variables"])["tools"]
            equal([t["function"]["name"] for t in shown], ["weather", "clock"], "the prompt's tools")
    c.text = '{"name": "weather", "arguments": {"city": "Oslo"}}'
    message = g.post("/v1/chat/completions", dict(both, tool_choice={"type": "allowed_tools", "allowed_tools": inner}))
    check("tool_calls" not in message[1]["choices"][0]["message"], "a call without marks of another tool", message)
    c.text = CALL
    for inner, words in (
        ({"mode": "none", "tools": [clock]}, "has a mode, auto or required"),
        ({"mode": "auto", "tools": []}, "has a mode, auto or required"),
        ({"mode": "auto", "tools": [{"type": "function"}]}, "has no name"),
        ({"mode": "auto", "tools": [{"type": "function", "function": {"name": "x"}}]}, "is not one of 'tools'"),
        ({"mode": "auto", "tools": [{"type": "mcp"}]}, "names no function"),
    ):
        choice = {"type": "allowed_tools", "allowed_tools": inner}
        status, e = g.post("/v1/chat/completions", dict(both, tool_choice=choice))
        check(status == 400 and words in e["error"]["message"], inner, e)


def mask(calls):
    for c in calls:
        check(re.fullmatch(r"(call|toolu)_[0-9a-f]{16}", c.pop("id")), "an id")
    return calls


def openai(c, g):
    ask = {"messages": HELLO, "tools": [TOOL]}
    made = {"type": "function", "function": {"name": "weather", "arguments": '{"city": "Gra\u00df"}'}}
    for text, content, n in (
        (CALL, None, 1),
        ("<think>Hm.</think>So:\n" + CALL + "\n" + CALL + "\n", "So:", 2),
        ("no call", "no call", 0),
        ("<tool_call>{oops}</tool_call>", "<tool_call>{oops}</tool_call>", 0),
        (CALL[: -len("</tool_call>")], None, 1),
        ("a <tool b", "a <tool b", 0),
    ):
        for step in (1, 2, 3, 7, 1000):
            c.text, c.step = text, step
            r = g.post("/v1/chat/completions", ask)[1]["choices"][0]
            equal(
                (r["message"]["content"], r["finish_reason"], mask(r["message"].get("tool_calls", []))),
                (content, "tool_calls" if n else "stop", [made] * n),
                "%r by %d" % (text, step),
            )
            said = [
                json.loads(e)["choices"][0]
                for e in events(g.request("POST", "/v1/chat/completions", dict(ask, stream=True))[2])[:-1]
            ]
            equal("".join(k["delta"].get("content", "") for k in said), content or "", "a stream's text")
            calls = [x for k in said for x in k["delta"].get("tool_calls", [])]
            equal(
                ([x.pop("index") for x in calls], mask(calls), said[-1]["finish_reason"]),
                (list(range(n)), [made] * n, "tool_calls" if n else "stop"),
                "a stream's calls",
            )
    equal(json.loads(c.request["variables"]), {"tools": [TOOL]}, "what the template gets")
    c.format, c.text, c.step = "mistral", '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Gra\u00df"}}]', 3
    r = g.post("/v1/chat/completions", ask)[1]["choices"][0]
    equal(
        (r["message"]["content"], [x["function"]["name"] for x in r["message"]["tool_calls"]], r["finish_reason"]),
        (None, ["weather"], "tool_calls"),
        "another form of calls",
    )
    c.format, c.text, c.step = "hermes", CALL, 1000
    r = g.post("/v1/chat/completions", dict(ask, tool_choice="none"))[1]["choices"][0]
    equal(
        (r["message"]["content"], r["finish_reason"], c.request.get("variables", b"")),
        (CALL, "stop", b""),
        "tool_choice none",
    )
    for more, choice, parallel, soft in (
        ({}, "auto", True, 1),
        ({"tool_choice": "required"}, "required", True, 0),
        ({"tool_choice": {"type": "function", "function": {"name": "weather"}}}, "weather", True, 0),
        ({"parallel_tool_calls": False}, "auto", False, 0),
    ):
        equal(g.post("/v1/chat/completions", dict(ask, **more))[0], 200, "tool_choice")
        must = c.request["constraint"]
        equal(
            (must["kind"], json.loads(must["text"]), must.get("soft", 0)),
            ("calls", {"tools": [TOOL], "choice": choice, "parallel": parallel}, soft),
            "what the answer must be",
        )
    allowed(c, g, ask)
    turn = [
        {"role": "assistant", "content": None, "tool_calls": [dict(made, id="call_1")]},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    ]
    equal(g.post("/v1/chat/completions", dict(ask, messages=HELLO + turn))[0], 200, "a turn with results")
    got = [(m["role"], m.get("text", b"").decode(), json.loads(m.get("fields", b"{}"))) for m in c.request["messages"]]
    equal(
        got[1:],
        [
            (
                "assistant",
                "",
                {
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "weather", "arguments": {"city": "Gra\u00df"}},
                        }
                    ]
                },
            ),
            ("tool", "rain", {"tool_call_id": "call_1"}),
        ],
        "its messages",
    )
    for bad, words in (
        (dict(ask, tools=[{"type": "web_search"}], tool_choice={"type": "web_search"}), "'web_search'"),
        (
            dict(
                ask,
                tools=ask["tools"] + [{"type": "custom", "custom": {"name": "patch"}}],
                tool_choice={"type": "custom", "name": "patch"},
            ),
            "'patch', which ntx cannot offer",
        ),
        (dict(ask, tools=[{"type": "function", "function": {}}]), "with a name"),
        (dict(ask, tools="x"), "a list"),
        (dict(ask, tool_choice={"type": "function"}), "names a function"),
        (dict(ask, tool_choice="required", response_format={"type": "json_object"}), "both"),
        (
            dict(ask, messages=HELLO + [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}]),
            "function with a name",
        ),
        (dict(ask, messages=[dict(HELLO[0], tool_calls=[{}])]), "only the assistant's"),
    ):
        status, e = g.post("/v1/chat/completions", bad)
        check(status == 400 and words in e["error"]["message"], bad, status, e)
    body = (
        json.dumps(dict(ask, tools=[{"type": "function", "function": {"name": "f", "parameters": {"a": "DEEP"}}}]))
        .replace('"DEEP"', "[" * 2000 + "]" * 2000)
        .encode()
    )
    status, e = g.post("/v1/chat/completions", body)
    check(status == 400 and "within each other" in e["error"]["message"], "2000 lists within each other", status, e)


def anthropic(c, g):
    ask = {
        "max_tokens": 50,
        "messages": HELLO,
        "tools": [{"name": "weather", "description": "of a city", "input_schema": SCHEMA}],
    }
    c.text, c.step = "So:\n" + CALL, 3
    r = g.post("/v1/messages", ask)[1]
    use = {"type": "tool_use", "name": "weather", "input": {"city": "Gra\u00df"}}
    equal(
        (mask([r["content"][1]]), r["content"][0], r["stop_reason"]),
        ([use], {"type": "text", "text": "So:"}, "tool_use"),
        "a message that calls",
    )
    equal(json.loads(c.request["variables"]), {"tools": [TOOL]}, "what the template gets")
    said = [json.loads(data) for name, data in events(g.request("POST", "/v1/messages", dict(ask, stream=True))[2])]
    start = [s for s in said if s["type"] == "content_block_start"]
    equal((mask([start[1]["content_block"]]), start[1]["index"]), ([dict(use, input={})], 1), "a block that calls")
    equal(
        [s["delta"]["partial_json"] for s in said if s["type"] == "content_block_delta" and s["index"] == 1],
        ['{"city":"Gra\u00df"}'],
        "its arguments",
    )
    equal([s["index"] for s in said if s["type"] == "content_block_stop"], [0, 1], "blocks that end")
    equal(said[-2]["delta"]["stop_reason"], "tool_use", "why it stops")
    turn = [
        {"role": "assistant", "content": [{"type": "text", "text": "So:"}, dict(use, id="toolu_1")]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "rain"}]},
                {"type": "text", "text": "Well?"},
            ],
        },
    ]
    equal(g.post("/v1/messages", dict(ask, messages=HELLO + turn))[0], 200, "a turn with results")
    got = [(m["role"], m.get("text", b"").decode(), json.loads(m.get("fields", b"{}"))) for m in c.request["messages"]]
    equal(
        got[1:],
        [
            (
                "assistant",
                "So:",
                {
                    "tool_calls": [
                        {
                            "id": "toolu_1",
                            "type": "function",
                            "function": {"name": "weather", "arguments": {"city": "Gra\u00df"}},
                        }
                    ]
                },
            ),
            ("tool", "rain", {"tool_call_id": "toolu_1"}),
            ("user", "Well?", {}),
        ],
        "its messages",
    )


def ollama(c, g):
    ask = {"messages": HELLO, "tools": [TOOL]}
    c.text, c.step = CALL, 4
    want = [{"function": {"name": "weather", "arguments": {"city": "Gra\u00df"}}}]
    equal(
        g.post("/api/chat", dict(ask, stream=False))[1]["message"],
        {"role": "assistant", "content": "", "tool_calls": want},
        "a call",
    )
    lines = [json.loads(x) for x in g.request("POST", "/api/chat", ask)[2].splitlines()]
    equal([x["message"].get("tool_calls") for x in lines], [want, None], "a stream's call")
    turn = [
        {"role": "assistant", "content": "", "tool_calls": want},
        {"role": "tool", "tool_name": "weather", "content": "rain"},
    ]
    equal(g.post("/api/chat", dict(ask, messages=HELLO + turn, stream=False))[0], 200, "a turn with results")
    equal(json.loads(c.request["messages"][2]["fields"]), {"name": "weather"}, "whose result it is")


def mask_ids(text):
    text = re.sub(r"(resp|msg|rs|fc)_[0-9a-f]{24}", r"\1_", text)
    return re.sub(r'"created_at":\d+', '"created_at":0', re.sub(r"call_[0-9a-f]{16}", "call_", text))


def responses(c, g):
    flat = dict(TOOL["function"], type="function")
    ask = {
        "model": "any",
        "input": "Weather?",
        "instructions": "Be brief.",
        "tools": [flat],
        "temperature": 0.5,
        "store": True,
    }
    c.text, c.step = "<think>Hm.</think>So:\n" + CALL, 3
    status, head, body = g.request("POST", "/v1/responses", ask)
    r = json.loads(mask_ids(body.decode()))
    thought = {
        "type": "reasoning",
        "id": "rs_0",
        "status": "completed",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm."}],
    }
    said = {
        "type": "message",
        "id": "msg_1",
        "status": "completed",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "So:", "annotations": [], "logprobs": []}],
    }
    call = {
        "type": "function_call",
        "id": "fc_2",
        "call_id": "call_",
        "name": "weather",
        "status": "completed",
        "arguments": '{"city": "Gra\u00df"}',
    }
    equal(
        (status, r["object"], r["id"], r["status"], r["output"]),
        (200, "response", "resp_", "completed", [thought, said, call]),
        "a response",
    )
    equal(
        (r["tools"], r["usage"]["input_tokens"], r["error"], r["incomplete_details"]),
        ([flat], 5, None, None),
        "what else it says",
    )
    equal(
        (r["instructions"], r["max_output_tokens"], r["parallel_tool_calls"], r["tool_choice"], r["metadata"]),
        ("Be brief.", None, True, "auto", {}),
        "what it tells again",
    )
    again = dict(
        max_output_tokens=9,
        parallel_tool_calls=False,
        tool_choice={"type": "function", "name": "weather"},
        metadata={"a": "b"},
    )
    r = g.post("/v1/responses", dict(ask, **again))[1]
    equal({k: r[k] for k in again}, again, "what it tells again of what was said otherwise")
    equal(
        [(m["role"], m["text"].decode()) for m in c.request["messages"]],
        [("system", "Be brief."), ("user", "Weather?")],
        "its messages",
    )
    equal(json.loads(c.request["variables"])["tools"][0]["function"]["name"], "weather", "what the template gets")
    told = [
        json.loads(mask_ids(data))
        for name, data in events(g.request("POST", "/v1/responses", dict(ask, stream=True))[2])
    ]
    equal([e["sequence_number"] for e in told], list(range(len(told))), "the numbers of events")
    kinds = [e["type"] for e in told]
    names = [k for i, k in enumerate(kinds) if not i or kinds[i - 1] != k]
    steps = ["output_item.added", "content_part.added", "%s.delta", "%s.done", "content_part.done", "output_item.done"]
    want = (
        ["created", "in_progress"]
        + [x % "reasoning_text" if "%" in x else x for x in steps]
        + [x % "output_text" if "%" in x else x for x in steps]
    )
    want += [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    equal(names, ["response." + x for x in want], "events")
    equal("".join(e["delta"] for e in told if e["type"] == "response.output_text.delta"), "So:", "its text")
    equal([e["item"] for e in told if e["type"] == "response.output_item.done"], [thought, said, call], "its items")
    equal([e["output_index"] for e in told if e["type"] == "response.output_item.added"], [0, 1, 2], "their numbers")
    equal(
        (told[-1]["response"]["output"], told[-1]["response"]["status"], told[0]["response"]["output"]),
        ([thought, said, call], "completed", []),
        "the whole at the end",
    )
    turn = [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        thought,
        said,
        dict(call, call_id="call_1"),
        dict(call, call_id="call_2"),
        {"type": "function_call_output", "call_id": "call_1", "output": "rain"},
        {"type": "function_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "sun"}]},
    ]
    equal(g.post("/v1/responses", dict(ask, input=turn))[0], 200, "a turn with results")
    got = [(m["role"], m.get("text", b"").decode(), json.loads(m.get("fields", b"{}"))) for m in c.request["messages"]]
    made = [
        {"id": i, "type": "function", "function": {"name": "weather", "arguments": {"city": "Gra\u00df"}}}
        for i in ("call_1", "call_2")
    ]
    equal(
        got[2:],
        [
            ("assistant", "So:", {"tool_calls": made, "reasoning_content": "Hm."}),
            ("tool", "rain", {"tool_call_id": "call_1"}),
            ("tool", "sun", {"tool_call_id": "call_2"}),
        ],
        "its messages",
    )
    for bad, words in (
        (dict(ask, previous_response_id="resp_1"), "nothing is kept"),
        (dict(ask, input=[]), "at least one item"),
        (dict(ask, input=[{"type": "item_reference", "id": "x"}]), "nothing is kept"),
        (dict(ask, input=[{"type": "computer_call"}]), "'computer_call'"),
        (dict(ask, tools=[{"type": "web_search"}], tool_choice={"type": "web_search"}), "'web_search'"),
        (dict(ask, text={"format": {"type": "odd"}}), "format"),
        (dict(ask, background=True), "nothing is kept"),
        (dict(ask, input=5), "a string, or a list"),
        (dict(ask, input=["x"]), "must be an object"),
        (dict(ask, n=2), "'n' is not supported"),
        (dict(ask, max_output_token=2), "is 'max_output_tokens' meant?"),
        (
            dict(ask, input=[{"type": "function_call", "call_id": "x", "arguments": "5"}]),
            "function with a name",
        ),
    ):
        status, e = g.post("/v1/responses", bad)
        check(status == 400 and words in e["error"]["message"], bad, status, e)
    c.text = ""
    equal(
        [name for name, _ in events(g.request("POST", "/v1/responses", dict(ask, stream=True))[2])][-1],
        "response.completed",
        "an empty answer",
    )


def thoughts(c, g):
    """Thoughts of earlier turns go back to the template."""
    c.text, c.step = "ok", 1000
    parts = [{"type": "thinking", "thinking": "Hm.", "signature": ""}, {"type": "text", "text": "So."}]
    for path, ask in (
        (
            "/v1/chat/completions",
            {"messages": HELLO + [{"role": "assistant", "content": "So.", "reasoning_content": "Hm."}] + HELLO},
        ),
        (
            "/api/chat",
            {"messages": HELLO + [{"role": "assistant", "content": "So.", "thinking": "Hm."}] + HELLO, "stream": False},
        ),
        ("/v1/messages", {"max_tokens": 5, "messages": HELLO + [{"role": "assistant", "content": parts}] + HELLO}),
    ):
        equal(g.post(path, ask)[0], 200, path)
        equal(
            [(m["text"].decode(), json.loads(m.get("fields", b"{}"))) for m in c.request["messages"]],
            [("Weather?", {}), ("So.", {"reasoning_content": "Hm."}), ("Weather?", {})],
            path,
        )


def many_messages(c, g):
    """The JSON depth limit does not limit a long conversation: nesting counts, not the number of values."""
    c.text = "ok"
    long = [
        {"role": ("user", "assistant")[i % 2], "content": [{"type": "text", "text": "%d" % i}]} for i in range(1001)
    ]
    equal(g.post("/v1/chat/completions", {"messages": long})[0], 200, "1001 messages")
    equal([m["text"].decode() for m in c.request["messages"]], ["%d" % i for i in range(1001)], "the messages")


def many_thoughts(c, g):
    """A thought in many parts must cost time in proportion to its bytes.

    If each part were added to a copy of all parts before it, it would take seconds.
    """

    def cpu():
        with open("/proc/%d/stat" % g.p.pid) as f:
            return sum(int(x) for x in f.read().rsplit(")", 1)[1].split()[11:13]) / os.sysconf("SC_CLK_TCK")

    c.text, took, part, parts = "ok", [], "Hm. " * 25, 20000
    for n, word in ((1, part * parts), (parts, part)):
        thought = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": word}] * n}
        before = cpu()
        status, answer = g.post(
            "/v1/responses",
            {"input": HELLO + [thought, {"type": "message", "role": "assistant", "content": "So."}] + HELLO},
        )
        equal(status, 200, "%d parts: %s" % (n, answer))
        took.append(cpu() - before)
        equal(
            json.loads(c.request["messages"][1]["fields"])["reasoning_content"] == part * parts,
            True,
            "the thought is whole",
        )
    check(
        took[1] < took[0] + 1.5 * float(os.environ.get("NTX_TEST_SLOW", "1")), "seconds for one part and for many", took
    )
    print("%d parts: %.2f s, one: %.2f s" % (parts, took[1], took[0]))


def leaves(c, g):
    """A client leaves while ntx-computed reads nothing: ntx-computed notices, too."""
    c.deaf = True
    body = json.dumps({"prompt": "a " * (2 << 20)}).encode()
    with socket.create_connection(("127.0.0.1", g.port)) as s:
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        check(not c.left.wait(1), "it waits")
    check(c.left.wait(10 * patience()), "the gateway sees that its client left")
    c.deaf = False


def cut(c, g):
    """An answer that ended within a call: each API reports what it can of it, never as text; whole and streamed."""
    tools, anthropics = (
        {"messages": HELLO, "tools": [TOOL]},
        {"max_tokens": 9, "messages": HELLO, "tools": [{"name": "weather", "input_schema": SCHEMA}]},
    )
    flat = {"input": "Weather?", "tools": [dict(TOOL["function"], type="function")]}
    begun = '{"day": 5, "city": "Gra'
    full = '<tool_call>{"name": "weather", "arguments": {}}</tool_call>'
    for done, text, said, calls in (
        (
            {"finish": "length"},
            'So:\n<tool_call>\n{"name": "weather", "arguments": ' + begun,
            "So:",
            [("weather", begun, {"day": 5}, True)],
        ),
        ({"finish": "length"}, 'So:\n<tool_call>\n{"name": "wea', "So:", []),
        ({"finish": "length"}, "<tool_cal", "", []),
        (
            {"finish": "length"},
            full + '<tool_call>{"name": "weather", "argu',
            "",
            [("weather", "{}", {}, False), ("weather", "", {}, True)],
        ),
        ({"finish": "length"}, full + "So", "So", [("weather", "{}", {}, False)]),
        (
            {"finish": "stop", "stop": "Z"},
            '<tool_call>{"name": "weather", "arguments": ' + begun,
            "",
            [("weather", begun, {"day": 5}, True)],
        ),
    ):
        length = done["finish"] == "length"
        for step in (1, 5, 1000):
            c.text, c.done, c.step = text, done, step
            what = "%r by %d" % (text, step)
            written = [(name, args) for name, args, _, _ in calls]
            r = g.post("/v1/chat/completions", tools)[1]["choices"][0]
            got = [(x["function"]["name"], x["function"]["arguments"]) for x in r["message"].get("tool_calls", [])]
            equal((r["message"]["content"] or "", got, r["finish_reason"]), (said, written, done["finish"]), what)
            s = [
                json.loads(e)["choices"][0]
                for e in events(g.request("POST", "/v1/chat/completions", dict(tools, stream=True))[2])[:-1]
            ]
            got = [
                (x["function"]["name"], x["function"]["arguments"]) for k in s for x in k["delta"].get("tool_calls", [])
            ]
            equal(
                ("".join(k["delta"].get("content", "") for k in s), got, s[-1]["finish_reason"]),
                (said, written, done["finish"]),
                what + ", a stream",
            )

            r = g.post("/v1/messages", anthropics)[1]
            why = ("max_tokens", None) if length else ("stop_sequence", "Z")
            blocks = [{"type": "text", "text": said}] * bool(said) + [
                {"type": "tool_use", "name": name, "input": whole} for name, _, whole, _ in calls
            ]
            equal(
                (
                    [{k: v for k, v in b.items() if k != "id"} for b in r["content"]],
                    r["stop_reason"],
                    r["stop_sequence"],
                ),
                (blocks, *why),
                what + ", a message",
            )
            s = [
                json.loads(data)
                for _, data in events(g.request("POST", "/v1/messages", dict(anthropics, stream=True))[2])
            ]
            got = [[k["content_block"].get("name"), "", ""] for k in s if k["type"] == "content_block_start"]
            for k in s:
                if k["type"] == "content_block_delta":
                    got[k["index"]][1] += k["delta"].get("text", "")
                    got[k["index"]][2] += k["delta"].get("partial_json", "")
            equal(
                sorted(got, key=str),
                sorted([[None, said, ""]] * bool(said) + [[name, "", args] for name, args, _, _ in calls], key=str),
                what + ", its blocks",
            )
            equal(
                [k["index"] for k in s if k["type"] == "content_block_stop"], list(range(len(got))), "blocks that end"
            )
            equal((s[-2]["delta"]["stop_reason"], s[-2]["delta"]["stop_sequence"]), why, what + ", why it stops")

            r = g.post("/api/chat", dict(tools, stream=False))[1]
            whole = [{"function": {"name": name, "arguments": args}} for name, _, args, short in calls if not short]
            equal(
                (r["message"]["content"], r["message"].get("tool_calls", []), r["done_reason"]),
                (said, whole, done["finish"]),
                what + ", Ollama's",
            )
            s = [json.loads(x) for x in g.request("POST", "/api/chat", tools)[2].splitlines()]
            got = [x for k in s for x in k["message"].get("tool_calls", [])]
            equal(
                ("".join(k["message"]["content"] for k in s), got, s[-1]["done_reason"]),
                (said, whole, done["finish"]),
                what + ", Ollama's stream",
            )

            items = [(name, args, "incomplete" if short else "completed") for name, args, _, short in calls]
            told = [
                json.loads(data) for _, data in events(g.request("POST", "/v1/responses", dict(flat, stream=True))[2])
            ]
            for r in (g.post("/v1/responses", flat)[1], told[-1]["response"]):
                equal(
                    [(x["name"], x["arguments"], x["status"]) for x in r["output"] if x["type"] == "function_call"],
                    items,
                    what + ", a response",
                )
                equal(
                    {x["status"] for x in r["output"] if x["type"] == "message"} - {"completed"},
                    {"incomplete"} if length and not (calls and calls[-1][3]) else set(),
                    what + ", its text's status",
                )
                equal(r["status"], "incomplete" if length else "completed", what + ", its status")
    c.done = {"finish": "stop"}


def main():
    with tempfile.TemporaryDirectory(prefix="ntx-tools-") as tmp:
        c = Computed(tmp)
        with Gateway(c) as g:
            for part in (openai, anthropic, ollama, responses, cut, thoughts, many_messages, many_thoughts, leaves):
                part(c, g)


main()
