#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every field of every API, by the gateway's own table: docs/http-fields.md is that table, and each row is tried.

A field that is honoured changes the request to ntx-computed, or the answer. One without effect changes nothing. One
that is ignored changes nothing and is reported. One that is refused gives an error with its name. A setting for
thinking reaches ntx-computed, and from there the prompt and the answer.
"""

import copy
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from computed import Computed  # noqa: E402
from gateway import GATEWAY, Daemons, Gateway, check, equal, make_model  # noqa: E402
from gguf_edit import STR, Gguf  # noqa: E402

FIELDS = os.path.join(os.environ["NTX_SOURCE"], "docs", "http-fields.md")
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}
CLAUDE_TOOL = {"name": "f", "description": "d", "input_schema": SCHEMA}
USER = [{"role": "user", "content": "Hi"}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
CALLED = (
    USER
    + [
        {"role": "assistant", "content": "", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        {"role": "assistant", "content": "y"},
    ]
    + USER
)
CHAT, RESPONSE, CLAUDE = (
    {"messages": USER, "tools": [TOOL]},
    {"input": "Hi", "tools": [dict(TOOL["function"], type="function")]},
    {"max_tokens": 5, "messages": USER, "tools": [CLAUDE_TOOL]},
)
JSON = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
NAMES = ["colour"]
with open(os.path.join(os.environ["NTX_SOURCE"], "tests", "golden", "pictures.json")) as golden:
    PNG, OTHER_PNG = [one["file"] for one in json.load(golden)["decode"] if one["name"] in ("png", "png alpha")]
DATA = "data:image/png;base64,"
PICTURE = {"type": "image_url", "image_url": {"url": DATA + PNG}}
SOURCE = {"type": "image", "source": {"type": "base64", "data": PNG}}
BLOCKS = [
    {"role": "user", "content": "Hi"},
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "Hm."}, {"type": "tool_use", "id": "t", "name": "f", "input": {}}],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "x"},
            {"type": "text", "text": "So?"},
            PICTURE,
        ],
    },
]
ITEMS = [
    {"role": "user", "content": "Hi"},
    {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c", "output": "x"},
]

# Each object: a path, a body that is answered, and where in it the object lies (a path for each that can have members;
# the first one unless BELONGS says otherwise).
MANAGED = {"POST /api/pull", "DELETE /api/delete", "POST /api/create", "POST /api/copy"}  # manage_test.py
OBJECTS = {
    "POST /v1/chat/completions and /apply-template": ("/v1/chat/completions", CHAT, [[]]),
    "POST /v1/completions": ("/v1/completions", {"prompt": "Hi"}, [[]]),
    "POST /v1/responses": ("/v1/responses", RESPONSE, [[]]),
    "POST /v1/embeddings": ("/v1/embeddings", {"input": "Hi"}, [[]]),
    "POST /v1/messages": ("/v1/messages", CLAUDE, [[]]),
    "POST /v1/messages/count_tokens": ("/v1/messages/count_tokens", CLAUDE, [[]]),
    "POST /api/chat": ("/api/chat", dict(CHAT, stream=False), [[]]),
    "POST /api/generate": ("/api/generate", {"prompt": "Hi", "stream": False}, [[]]),
    "POST /api/embed": ("/api/embed", {"input": "Hi"}, [[]]),
    "POST /api/embeddings": ("/api/embeddings", {"prompt": "Hi"}, [[]]),
    "POST /api/show": ("/api/show", {}, [[]]),
    "POST /infill": ("/infill", {"input_prefix": "a", "input_suffix": "b"}, [[]]),
    "POST /completion": ("/completion", {"prompt": "Hi", "n_predict": 3}, [[]]),
    "POST /tokenize": ("/tokenize", {"content": "Hi"}, [[]]),
    "POST /detokenize": ("/detokenize", {"tokens": [1]}, [[]]),
    "`options` of /api/chat and /api/generate": ("/api/chat", dict(CHAT, stream=False, options={}), [["options"]]),
    "`stream_options` of /v1/chat/completions, /v1/completions and /v1/responses": (
        "/v1/chat/completions",
        dict(CHAT, stream=True, stream_options={}),
        [["stream_options"]],
    ),
    "`structured_outputs` (vLLM)": (
        "/v1/completions",
        {"prompt": "Hi", "structured_outputs": {}},
        [["structured_outputs"]],
    ),
    "one of `messages` of /v1/chat/completions and /api/chat": (
        "/v1/chat/completions",
        {"messages": CALLED},
        [["messages", 0], ["messages", 1], ["messages", 2], ["messages", 3]],
    ),
    "one of `tool_calls` of a message of /v1/chat/completions and /api/chat": (
        "/v1/chat/completions",
        {"messages": CALLED},
        [["messages", 1, "tool_calls", 0]],
    ),
    "one of `messages` of /v1/messages": ("/v1/messages", CLAUDE, [["messages", 0]]),
    "a part or block of a message's `content`, in every API": (
        "/v1/messages",
        dict(CLAUDE, messages=BLOCKS),
        [
            ["messages", 2, "content", 1],
            ["messages", 1, "content", 0],
            ["messages", 1, "content", 1],
            ["messages", 2, "content", 0],
            ["messages", 2, "content", 2],
        ],
    ),
    "`image_url` of a part of `content`": (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [PICTURE]}]},
        [["messages", 0, "content", 0, "image_url"]],
    ),
    "`source` of a block of type image of /v1/messages": (
        "/v1/messages",
        dict(CLAUDE, messages=[{"role": "user", "content": [SOURCE]}]),
        [["messages", 0, "content", 0, "source"]],
    ),
    "one of `input` of /v1/responses": (
        "/v1/responses",
        dict(RESPONSE, input=ITEMS),
        [["input", 0], ["input", 1], ["input", 2]],
    ),
    "one of `tools` of /v1/chat/completions and /api/chat": ("/v1/chat/completions", CHAT, [["tools", 0]]),
    "`function` of such a tool": ("/v1/chat/completions", CHAT, [["tools", 0, "function"]]),
    "one of `tools` of /v1/responses": ("/v1/responses", RESPONSE, [["tools", 0]]),
    "one of `tools` of /v1/messages": ("/v1/messages", CLAUDE, [["tools", 0]]),
    "`response_format` of /v1/chat/completions": (
        "/v1/chat/completions",
        {"messages": USER, "response_format": JSON},
        [["response_format"]],
    ),
    "`json_schema` of it": (
        "/v1/chat/completions",
        {"messages": USER, "response_format": JSON},
        [["response_format", "json_schema"]],
    ),
    "`text` of /v1/responses": ("/v1/responses", {"input": "Hi", "text": {}}, [["text"]]),
    "`format` of it": (
        "/v1/responses",
        {"input": "Hi", "text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        [["text", "format"]],
    ),
    "`reasoning` of /v1/responses and /v1/chat/completions": (
        "/v1/responses",
        dict(RESPONSE, reasoning={}),
        [["reasoning"]],
    ),
    "`thinking` of /v1/messages and /v1/chat/completions": (
        "/v1/messages",
        dict(CLAUDE, thinking={"type": "adaptive"}),
        [["thinking"]],
    ),
    "`output_config` of /v1/messages": ("/v1/messages", dict(CLAUDE, output_config={}), [["output_config"]]),
    "`format` of it, Anthropic's": (
        "/v1/messages",
        {"max_tokens": 5, "messages": USER, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        [["output_config", "format"]],
    ),
}
# A value that is honoured, by the field's name, or by its object's name and its own.
GOOD = {
    "model": "m:a",
    "messages": [{"role": "user", "content": "Ho"}],
    "prompt": "Ho",
    "input": "Ho",
    "instructions": "Be",
    "keep_alive": "5m",
    "ttl": 60,
    "name": "m",
    "system": "Be",
    "input_prefix": "x",
    "input_suffix": "x",
    "input_extra": [{"filename": "a", "text": "t"}],
    "tokens": [2],
    "options": {"top_k": 3},
    "stream_options": {"include_usage": True},
    "encoding_format": "base64",
    "num_predict": 7,
    "n_predict": 7,
    "seed": 9,
    "stop": ["s"],
    "stop_sequences": ["s"],
    "logit_bias": {"5": 1},
    "max_tokens": 3,
    "echo": False,
    "suffix": "",
    "grammar": 'root ::= "x"',
    "guided_json": SCHEMA,
    "guided_choice": ["x"],
    "guided_regex": "x+",
    "regex": "x+",
    "function_call": {"name": "g", "arguments": "{}"},
    "guided_grammar": 'root ::= "x"',
    "structured_outputs": {"choice": ["x"]},
    "json": SCHEMA,
    "choice": ["x"],
    "continue_final_message": False,
    "add_generation_prompt": True,
    "response_format": JSON,
    "format": "json",
    "text": {"format": {"type": "json_object"}},
    "output_config": {"effort": "low"},
    "reasoning_effort": "low",
    "enable_thinking": False,
    "enabled": False,
    "thinking_budget": 5,
    "thinking_budget_tokens": 5,
    "thinking_token_budget": 5,
    "reasoning_budget": 5,
    "reasoning_budget_tokens": 5,
    "chat_template_kwargs": {"colour": "red"},
    "reasoning": {"effort": "none"},
    "thinking": {"type": "disabled"},
    "think": False,
    "tools": [],
    "tool_choice": "none",
    "parallel_tool_calls": False,
    "modalities": ["text"],
    "truncation": "disabled",
    "role": "system",
    "content": "Ho",
    "name": "ann",
    "tool_call_id": "d",
    "tool_name": "g",
    "tool_calls": [dict(CALL, id="d")],
    "reasoning_content": "Hm.",
    "id": "d",
    "text_part": "No",
    "tool_use_id": "u",
    "is_error": True,
    "call_id": "d",
    "arguments": '{"a":1}',
    "output": "y",
    "description": "e",
    "parameters": {"type": "object"},
    "input_schema": {"type": "object"},
    "schema": {"type": "object"},
    "json_schema": {"schema": {"type": "object"}},
    "effort": "none",
    "budget_tokens": 5,
    "raw": True,
    "strict": True,
    "logprobs": True,
    "stream": True,
    "function": {"name": "g", "arguments": "{}"},
    "add_special": True,
    "add_special_tokens": True,
    "parse_special": False,
    "with_pieces": True,
    "return_token_strs": True,
    "top_logprobs": 2,
    "include_usage": True,
    "metadata": {"a": "b"},
    "ignore_eos": True,
    "truncate": False,
    "images": [PNG],
    "image_url": DATA + OTHER_PNG,
    "url": DATA + OTHER_PNG,
    "source": {"type": "base64", "data": OTHER_PNG},
    "data": OTHER_PNG,
    "detail": "auto",
}
GOOD_IN = {
    ("POST /v1/completions", "logprobs"): 2,
    ("POST /v1/messages", "tool_choice"): {"type": "any"},
    ("POST /v1/messages/count_tokens", "tool_choice"): {"type": "any"},
    ("POST /api/chat", "stream"): True,
    ("one of `messages` of /v1/messages", "role"): "user",
    ("one of `messages` of /v1/chat/completions and /api/chat", "thinking"): "Hm.",
    ("one of `messages` of /v1/chat/completions and /api/chat", "reasoning"): "Hm.",
    ("`reasoning` of /v1/responses and /v1/chat/completions", "max_tokens"): 5,
    ("a part or block of a message's `content`, in every API", "text"): "No",
    ("a part or block of a message's `content`, in every API", "thinking"): "Ah.",
    ("a part or block of a message's `content`, in every API", "input"): {"a": 1},
    ("a part or block of a message's `content`, in every API", "type"): "text",
    ("one of `input` of /v1/responses", "type"): "message",
    ("one of `tools` of /v1/chat/completions and /api/chat", "type"): "function",
    ("one of `tools` of /v1/responses", "type"): "function",
    ("one of `tools` of /v1/chat/completions and /api/chat", "function"): {"name": "g"},
    ("one of `tools` of /v1/messages", "type"): "custom",
    ("`response_format` of /v1/chat/completions", "type"): "json_object",
    ("`format` of it", "type"): "json_object",
    ("`format` of it, Anthropic's", "type"): "json_schema",
    ("`text` of /v1/responses", "format"): {"type": "json_object"},
    ("`thinking` of /v1/messages and /v1/chat/completions", "type"): "disabled",
    ("`source` of a block of type image of /v1/messages", "type"): "base64",
    ("`output_config` of /v1/messages", "effort"): "low",
    ("`output_config` of /v1/messages", "format"): {"type": "json_schema", "schema": SCHEMA},
}
# Honoured, but the only accepted value is the default, or ntx-computed is not asked for what it changes.
SAME = {
    ("POST /v1/chat/completions and /apply-template", "modalities"),
    ("POST /v1/chat/completions and /apply-template", "continue_final_message"),
    ("POST /v1/chat/completions and /apply-template", "add_generation_prompt"),
    ("POST /v1/completions", "echo"),
    ("POST /v1/completions", "suffix"),
    ("POST /api/generate", "suffix"),
    ("POST /v1/responses", "truncation"),
    ("POST /api/embed", "truncate"),
    ("one of `messages` of /v1/messages", "role"),
    ("a part or block of a message's `content`, in every API", "type"),
    ("a part or block of a message's `content`, in every API", "detail"),
    ("`image_url` of a part of `content`", "detail"),
    ("`source` of a block of type image of /v1/messages", "type"),
    ("`source` of a block of type image of /v1/messages", "url"),  # of another type; gateway-images has it
    ("one of `input` of /v1/responses", "type"),
    ("one of `tools` of /v1/chat/completions and /api/chat", "type"),
    ("one of `tools` of /v1/responses", "type"),
    ("one of `tools` of /v1/messages", "type"),
    ("`format` of it, Anthropic's", "type"),
    *(
        ("POST /v1/messages/count_tokens", name)  # no part of the prompt
        for name in "max_tokens model stream temperature top_p top_k stop_sequences tool_choice".split()
    ),
    ("POST /v1/responses", "stream_options"),
}
LOADS = {"model", "name", "keep_alive", "ttl"}
ALSO = {"top_logprobs": {"logprobs": True}, "stream_options": {"stream": True}}  # what must be there, too
NEXT = {
    "tool_call_id": 2,
    "tool_calls": 1,
    "function_call": 3,
    "reasoning_content": 1,
    "reasoning": 1,
    "thinking": 1,
}  # which message, call or item has it
BELONGS = {
    "one of `messages` of /v1/chat/completions and /api/chat": NEXT,
    "a part or block of a message's `content`, in every API": {
        "thinking": 1,
        "id": 2,
        "name": 2,
        "input": 2,
        "tool_use_id": 3,
        "content": 3,
        "is_error": 3,
        "image_url": 4,
        "source": 4,
        "detail": 4,
    },
    "one of `input` of /v1/responses": {"call_id": 1, "name": 1, "arguments": 1, "output": 2},
}
KNOWN = {}  # the fields of each object
ODD = [{"odd": [1]}, 5.5, "odd", True, [3]]  # of these at least one is of no field's type


def table():
    """[(object, field, type, effect)], from the documentation."""
    rows, title, seen = [], None, set()
    for line in open(FIELDS):
        if line.startswith("## "):
            title = line[3:].strip()
            title += ", Anthropic's" if title in seen else ""
            seen.add(title)
        m = re.fullmatch(r"\| `(\w+)` \| (.*?) \| (honoured|no effect|not followed|refused) \| (.*?) \|\n", line)
        if m:
            rows.append((title, m[1], m[2], m[3]))
    return rows


class Walk:
    def __init__(self, c, g):
        self.c, self.g = c, g

    def ask(self, path, body):
        """Returns (status, Warning header, what ntx-computed was asked and the reply, both masked)."""
        self.c.asked.clear()
        status, head, text = self.g.request("POST", path, body)
        said = re.sub(
            r'"(id|created_at|item_id)":"[^"]*"|"created(_at)?":\d+|"\w+_duration":\d+|"temperature":[\d.]+|'
            r',"ntx":\{"ignored":\[[^]]*\]\}',
            "",
            text.decode(),
        )
        asked = copy.deepcopy(self.c.asked)
        for kind, m in asked:
            if kind == "generate" and not re.search(r'"seed"', json.dumps(body)):
                m["sampling"].pop("seed", None)
        return status, head.get("warning", ""), (asked, said), text

    def put(self, title, name, value):
        path, body, places = OBJECTS[title]
        body = copy.deepcopy(body)
        at = body
        for step in places[BELONGS.get(title, {}).get(name, 0)]:
            at = at[step]
        at[name] = value
        if title == "POST /tokenize" and name == "prompt":
            del body["content"]
        return path, body

    def sample(self, title, name, kind):
        if (title, name) in GOOD_IN:
            return GOOD_IN[title, name]
        if m := re.match(r"(number|integer) from (-?\d+)", kind):
            return max(int(m[2]), 0) + (2 if m[1] == "integer" else 0.5)
        check(name in GOOD, "this test has no value for", title, name)
        return GOOD[name]

    def one(self, title, name, kind, what):
        path, body = OBJECTS[title][:2]
        where = (title, name)
        full = ".".join(x for x in OBJECTS[title][2][0] if isinstance(x, str))
        full += ("." if full else "") + name
        if what == "honoured":
            path, more = self.put(title, name, self.sample(title, name, kind))
            before = self.ask(path, dict(body, **ALSO.get(name, {})))
            status, warning, told, text = self.ask(path, dict(more, **ALSO.get(name, {})))
            equal((status, warning), (200, ""), "%s is honoured, but: %s" % (where, text))
            if name in LOADS and told == before[2]:
                return  # it says which model is loaded, and how long: models_test.py
            equal(told != before[2], where not in SAME, "%s changes something" % (where,))
            if title.startswith(("POST", "`")) and not (title.startswith("POST") and name == "input_extra"):
                results = [self.ask(*self.put(title, name, odd)) for odd in ODD]
                bad = [r[3] for r in results if r[0] == 400 and name.encode() in r[3]]
                check(bad, where, "is taken, whatever its type", results)
        elif what == "refused":
            status, _, told, text = self.ask(*self.put(title, name, {"odd": 1}))
            equal(status, 400, "%s is refused, but: %s" % (where, text))
            check("'%s'" % name in text.decode(), where, "the refusal does not name it", text)
            equal(self.ask(*self.put(title, name, None))[0], 200, "%s that asks for nothing" % (where,))
        else:
            before = self.ask(path, body)
            status, warning, told, text = self.ask(*self.put(title, name, "odd"))
            equal((status, told), (200, before[2]), "%s changes nothing" % (where,))
            equal(warning, '299 ntx "ignored: %s"' % full if what == "not followed" else "", where)
            if what == "not followed" and '"stream": true' not in json.dumps(body):
                equal(json.loads(text)["ntx"], {"ignored": [full]}, where)


def unknown(g):
    """An unknown field is reported as ignored, but a misspelling of a known one is refused."""
    for title, (path, body, places) in OBJECTS.items():
        if places == [[]]:
            status, e = g.post(path, dict(body, temprature=1))
            near = "temperature" in KNOWN[title]
            check(status == (400 if near else 200), title, status, e)
            check(not near or "'temprature'" in json.dumps(e), title, e)
            status, head, _ = g.request("POST", path, dict(body, of_a_later_version=1))
            equal((status, head.get("warning")), (200, '299 ntx "ignored: of_a_later_version"'), title)
    status, head, _ = g.request("POST", "/v1/completions", {"prompt": "Hi", "": 1})
    equal((status, head["warning"]), (200, '299 ntx "ignored: ?"'), "a field without a name")
    evil = "x\r\nSet-Cookie: a=b\u202e" + "y" * 100
    status, head, body = g.request(
        "POST",
        "/v1/chat/completions",
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "Hi", "z": 1}],
                    evil: 1,
                    "extra_content": {"a": 1},
                }
            ]
        },
    )
    equal((status, "set-cookie" in head, head["warning"].isascii()), (200, False, True), "a name from afar in a header")
    equal(json.loads(body)["ntx"]["ignored"][-2:], ["messages.extra_content", "messages.content.z"], "what is told")
    many = {"messages": [dict(USER[0], **{"member%d" % i: 1 for i in range(500)})]}
    status, head, body = g.request("POST", "/v1/chat/completions", many)
    check(status == 200 and len(head["warning"]) < 600 and head["warning"].endswith('and others"'), "many names:", head)


def thinking(c, g):
    """Each API's settings become one text for ntx-computed; what the model has no use for is reported."""

    def asked(path, body):
        status, head, text = g.request("POST", path, body)
        equal(status, 200, "%s: %s" % (body, text))
        variables = json.loads(c.request.get("variables", b"{}") or b"{}")
        return c.request.get("think", ""), variables, head.get("warning", "")

    chat, messages, ollama, responses = (
        ("/v1/chat/completions", {"messages": USER}),
        ("/v1/messages", {"max_tokens": 5, "messages": USER}),
        ("/api/chat", {"messages": USER, "stream": False}),
        ("/v1/responses", {"input": "Hi"}),
    )
    kwargs = "chat_template_kwargs"
    rows = [  # the request's field, what ntx-computed is asked for, and what is reported of a model without thoughts
        (chat, {"reasoning_effort": "none"}, "off", ""),
        (chat, {"enable_thinking": False}, "off", ""),
        (chat, {kwargs: {"enable_thinking": False}}, "off", ""),
        (chat, {kwargs: {"thinking": False}}, "off", ""),
        (chat, {"thinking": {"type": "disabled"}}, "off", ""),
        (chat, {"thinking_budget": 0}, "off", ""),
        (chat, {"reasoning": {"enabled": False}}, "off", ""),
        (chat, {"reasoning": {"effort": "none"}}, "off", ""),
        (messages, {"thinking": {"type": "disabled"}}, "off", ""),
        (ollama, {"think": False}, "off", ""),
        (responses, {"reasoning": {"effort": "none"}}, "off", ""),
        (chat, {"enable_thinking": True}, "on", "enable_thinking"),
        (chat, {kwargs: {"enable_thinking": True}}, "on", kwargs + ".enable_thinking"),
        (ollama, {"think": True}, "on", "think"),
        (messages, {"thinking": {"type": "adaptive"}}, "auto", ""),
        (chat, {"reasoning_effort": "low"}, "on,low", "reasoning_effort"),
        (chat, {kwargs: {"reasoning_effort": "high"}}, "on,high", kwargs + ".reasoning_effort"),
        (ollama, {"think": "max"}, "on,max", "think"),
        (responses, {"reasoning": {"effort": "xhigh"}}, "on,xhigh", "reasoning.effort"),
        (
            messages,
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}},
            "auto,medium",
            "output_config.effort",
        ),
        (
            messages,
            {"thinking": {"type": "enabled", "budget_tokens": 1024}},
            "on,1024",
            "thinking, thinking.budget_tokens",
        ),
        (chat, {"thinking_budget": 77}, "on,77", "thinking_budget"),
        (chat, {"thinking_token_budget": 77}, "on,77", "thinking_token_budget"),
        (
            chat,
            {"reasoning": {"max_tokens": 9, "effort": "high"}},
            "on,high,9",
            "reasoning.effort, reasoning.max_tokens",
        ),
        (chat, {"thinking_budget": -1}, "", ""),
        (chat, {"reasoning_effort": "none", "thinking_budget": 5}, "off", ""),
    ]
    for (path, body), more, want, unused in rows:
        for can in (True, False):
            c.thinking = {"thinks": can, "switch": can, "levels": ["low"] if can else []}
            equal(
                asked(path, dict(body, **more)),
                (want, {}, '299 ntx "ignored: %s"' % unused if unused and not can else ""),
                (path, more, "with thoughts" if can else "without"),
            )
    c.thinking = {"thinks": True, "switch": True, "levels": []}
    equal(
        asked(*chat[:1], dict(chat[1], reasoning_effort="low")),
        ("on,low", {}, '299 ntx "ignored: reasoning_effort"'),
        "a level of a model that has none",
    )
    c.names = ["colour", "enable_thinking"]
    more = {"messages": [], "enable_thinking": True, "colour": "red", "size": 5}
    think, got, warning = asked("/v1/chat/completions", dict(CHAT, chat_template_kwargs=more))
    equal(
        (think, got["enable_thinking"], got["colour"], got["tools"], "messages" in got, warning),
        ("on", True, "red", [TOOL], False, '299 ntx "ignored: %s.messages, %s.size"' % (kwargs, kwargs)),
        "variables of the template, and those that are ntx's own",
    )
    equal(
        asked("/api/generate", {"prompt": "Hi", "raw": True, "stream": False, "think": False})[::2],
        ("", '299 ntx "ignored: think"'),
        "a text has no thoughts",
    )


def clients(g):
    """What Claude Code and Codex send by default."""
    claude = {
        "model": "claude-x",
        "max_tokens": 4,
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "medium"},
        "metadata": {"user_id": "u"},
        "service_tier": "auto",
        "betas": ["a-2025"],
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "tools": [CLAUDE_TOOL],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}]}
        ],
    }
    equal(g.post("/v1/messages?beta=true", claude)[0], 200, "Claude Code's")
    codex = dict(
        RESPONSE,
        store=False,
        include=["reasoning.encrypted_content"],
        reasoning={"effort": "medium", "summary": "auto"},
        client_metadata={"a": "b"},
        prompt_cache_key="k",
        text={"verbosity": "low"},
        service_tier="auto",
        stream=True,
        stream_options={"include_obfuscation": False},
    )
    equal(g.request("POST", "/v1/responses", codex)[0], 200, "Codex's")
    equal(
        g.post(
            "/v1/chat/completions",
            dict(
                CHAT,
                verbosity="low",
                cache_prompt=True,
                client_metadata={},
                store=True,
                prompt_cache_key="k",
                metadata={"a": "b"},
                service_tier="flex",
            ),
        )[0],
        200,
        "others'",
    )


FORM = (  # as Qwen3's
    b"{%- for m in messages -%}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor"
    b" -%}<|im_start|>assistant\n{%- if enable_thinking is defined and enable_thinking is false"
    b" %}\n<think>\n\n</think>\n\n{% else %}\n<think>\n{% endif -%}"
)


def through_daemons(tmp):
    """The thinking switch changes the model's prompt, and is reported as ignored if the template has none."""
    plain = make_model(
        os.path.join(tmp, "m.gguf"),
        "--layers",
        "2",
        "--embd",
        "64",
        "--ff",
        "128",
        "--heads",
        "2",
        "--kv",
        "1",
        "--seed",
        "5",
        "--chat-template",
        "chatml",
    )
    bent = Gguf(plain)
    bent.keys[b"tokenizer.chat_template"] = (STR, FORM)
    for path, switch in ((bent.write(os.path.join(tmp, "think.gguf")), True), (plain, False)):
        with Daemons() as d, Gateway(d) as g:
            c = d.client()
            c.load(path, ctx=512, threads=1)
            equal(
                "enable_thinking" in json.loads(c.status())["template_names"],
                switch,
                "what the status says of the template",
            )
            c.close()
            counts = {}
            for what, more in (
                ("", {}),
                ("on", {"thinking": {"type": "adaptive"}}),
                ("off", {"thinking": {"type": "disabled"}}),
            ):
                status, head, body = g.request("POST", "/v1/messages/count_tokens", dict(more, messages=USER))
                equal((status, head.get("warning", "")), (200, ""), "thinking " + what)
                counts[what] = json.loads(body)["input_tokens"]
            equal(
                (counts["on"], counts["off"] > counts["on"]), (counts[""], switch), "tokens of the prompt: %r" % counts
            )
            status, answer = g.post(
                "/v1/chat/completions",
                {"messages": USER, "max_tokens": 2, "chat_template_kwargs": {"enable_thinking": False}},
            )
            equal((status, answer["usage"]["prompt_tokens"]), (200, counts["off"]), "the same in a chat")


def main():
    told = subprocess.run([GATEWAY, "--fields"], capture_output=True, text=True, check=True).stdout
    equal(open(FIELDS).read() == told, True, "docs/http-fields.md is the output of ntx-gateway --fields")
    rows = table()
    equal(len(rows), len(re.findall(r"^\| `", told, re.M)), "rows that this test reads")
    rows = [r for r in rows if r[0] not in MANAGED]
    equal(len({r[:2] for r in rows}), len(rows), "rows that name a field once")
    equal({r[0] for r in rows}, set(OBJECTS), "objects")
    for title, name, _, _ in rows:
        KNOWN.setdefault(title, set()).add(name)
    with tempfile.TemporaryDirectory(prefix="ntx-fields-") as tmp:
        c = Computed(tmp)
        c.names, c.text = NAMES, "ok"
        with Gateway(c) as g:
            walk = Walk(c, g)
            for row in rows:
                walk.one(*row)
            unknown(g)
            clients(g)
            thinking(c, g)
        through_daemons(tmp)
    print("%d fields were tried" % len(rows))


main()
