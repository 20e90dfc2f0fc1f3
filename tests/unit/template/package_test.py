#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Templates of published models, which cannot be kept here, render byte for byte like in transformers.

Needs the folder with them (NTX_TEMPLATES=DIR, *.jinja), and transformers and jinja2 in this Python; otherwise it is
skipped."""

import glob
import itertools
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import oracle

folder = os.environ.get("NTX_TEMPLATES", "")
files = sorted(glob.glob(os.path.join(folder, "*.jinja"))) if folder else []
if not files:
    print("skipped: NTX_TEMPLATES names no folder with *.jinja")
    sys.exit(77)
if not oracle.available:
    print("skipped: this Python has no transformers and jinja2")
    sys.exit(77)

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather of a place, \"now\" & <later>.",
            "parameters": {
                "type": "object",
                "properties": {
                    "city": {"type": "string", "description": "Ville, e.g. Orléans"},
                    "days": {"type": "integer", "minimum": 1, "default": 3},
                    "unit": {"type": "string", "enum": ["C", "F"]},
                    "flags": {"type": "array", "items": {"type": "string"}},
                    "at": {
                        "type": "object",
                        "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
                        "required": ["lat"],
                    },
                },
                "required": ["city"],
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "now", "description": "The time.", "parameters": {"type": "object", "properties": {}}},
    },
]


def call(name, arguments, ident):
    return {"id": ident, "type": "function", "function": {"name": name, "arguments": arguments}}


S = {"role": "system", "content": "You are terse.\nVery."}
U = {"role": "user", "content": "Bonjour, \"toi\" & <moi>?"}
A = {"role": "assistant", "content": "Salut.\n"}
T = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nOui."}
R = {"role": "assistant", "content": "Non.", "reasoning_content": "Well, no."}
ARGS = {"city": "Orléans", "days": 2, "flags": ["a", "b"], "at": {"lat": 47.9, "lon": 1e-5}, "ok": True, "none": None}
C1 = {"role": "assistant", "content": "", "tool_calls": [call("get_weather", ARGS, "abcdef001")]}
C2 = {
    "role": "assistant",
    "content": "Let me see.",
    "reasoning_content": "A tool.",
    "tool_calls": [call("get_weather", ARGS, "abcdef002"), call("now", {}, "abcdef003")],
}
CS = {"role": "assistant", "content": None, "tool_calls": [call("get_weather", json.dumps(ARGS), "abcdef004")]}
W1 = {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef001", "content": "12 °C"}
W2 = {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef002", "content": "{\"t\": 12}"}
W3 = {"role": "tool", "name": "now", "tool_call_id": "abcdef003", "content": "noon"}
W4 = {"role": "tool", "name": "get_weather", "tool_call_id": "abcdef004", "content": "rain"}
P = {"role": "user", "content": [{"type": "text", "text": "In parts, "}, {"type": "text", "text": "two."}]}
TALKS = [
    [U],
    [S, U],
    [U, A, U],
    [S, U, A, U, A],
    [S, U, T, U],
    [U, R, U],
    [U, C1, W1],
    [S, U, C2, W2, W3],
    [U, C2, W2, W3, A, U],
    [U, CS, W4, U],
    [S, P],
    [U, C1, W1, R, U],
    [],
]
VARIABLES = {"bos_token": "<BOS>", "eos_token": "<EOS>", "unk_token": "<UNK>", "pad_token": "<PAD>"}


def variants():
    for talk, tools, prompt, thinking in itertools.product(
        TALKS, (None, TOOLS), (False, True), (None, False, True, "xhigh", "medium")
    ):
        v = dict(VARIABLES, messages=talk, tools=tools, documents=None, add_generation_prompt=prompt)
        if thinking is not None:
            v.update(
                enable_thinking=bool(thinking),
                thinking=bool(thinking),
                reasoning_effort=thinking if isinstance(thinking, str) else "high" if thinking else "low",
            )
        yield v


binary = os.path.join(os.environ["NTX_BUILD"], "tests", "test_template-cases")
same = differ = refused = ours_only = 0
perfect, worst = 0, []
with tempfile.TemporaryDirectory() as tmp:
    for path in files:
        with open(path, encoding="utf-8", newline="") as f:
            text = f.read()
        before, first = differ, None
        jobs = os.path.join(tmp, "jobs")
        wanted = []
        with open(jobs, "w", encoding="utf-8") as f:
            for v in variants():
                try:
                    wanted.append(oracle.render(text, v))
                except Exception as e:  # whatever the template or its language refuses
                    wanted.append(e)
                v["messages"] = oracle._space["_alias_reasoning_fields"](v["messages"])
                f.write(json.dumps(v, ensure_ascii=False) + "\n")
        out = (
            subprocess.run([binary, path, jobs, "lines"], stdout=subprocess.PIPE, check=True)
            .stdout.decode("utf-8", "replace")
            .splitlines()
        )
        got = [json.loads(line) for line in out]
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted):
            if isinstance(w, Exception):
                refused += "error" in g
                ours_only += "error" not in g
            elif g.get("text") == w:
                same += 1
            else:
                differ += 1
                first = first or (g, w)
        perfect += differ == before
        if first:
            worst.append(os.path.basename(path))
            g, w = first
            if "error" in g:
                print("%s: %d differ; %s" % (worst[-1], differ - before, g["error"]))
            else:
                at = next((i for i, (a, b) in enumerate(zip(g["text"], w)) if a != b), min(len(g["text"]), len(w)))
                print(
                    "%s: %d differ; at %d: %r, wanted %r"
                    % (
                        worst[-1],
                        differ - before,
                        at,
                        g["text"][max(0, at - 40) : at + 60],
                        w[max(0, at - 40) : at + 60],
                    )
                )
print(
    "%d of %d templates as transformers renders them: %d renderings the same, %d not; "
    "%d that transformers refuses are refused, %d are rendered"
    % (perfect, len(files), same, differ, refused, ours_only)
)
sys.exit(1 if differ else 0)
