#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Values with a meaning in other servers (-1, 0, "", [], absent): the table in docs/http-api.md, row by row.

Each row is tried on every path that has the field: what comes to ntx-computed, and what the client is told. The options
of `ntx` are tried by `ntx generate` beside the same imitation of ntx-computed. A row without a check fails, and so does
a check without a row."""

import copy
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from computed import Computed  # noqa: E402
from gateway import BIN, Gateway, check, equal  # noqa: E402

DOC = os.path.join(os.environ["NTX_SOURCE"], "docs", "http-api.md")
ABSENT = object()
USER = [{"role": "user", "content": "a"}]
MOST, SHARE = 1 << 28, 1e-6  # "all tokens", and "one token" of top_p and typical_p, in the message
PATHS = {
    "chat": ("/v1/chat/completions", {"messages": USER}),
    "text": ("/v1/completions", {"prompt": "a"}),
    "responses": ("/v1/responses", {"input": "a"}),
    "claude": ("/v1/messages", {"max_tokens": 5, "messages": USER}),
    "ochat": ("/api/chat", {"messages": USER, "stream": False}),
    "otext": ("/api/generate", {"prompt": "a", "stream": False}),
    "options": ("/api/chat", {"messages": USER, "stream": False, "options": {}}),
    "completion": ("/completion", {"prompt": "a"}),
    "infill": ("/infill", {"input_prefix": "a", "input_suffix": "b"}),
    "embed": ("/v1/embeddings", {"input": "a"}),
    "oembed": ("/api/embed", {"input": "a"}),
}
OPENAI = ["chat", "text", "responses"]
LLAMA = ["completion", "infill"]
TOOL = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
THINKING = "thinking_budget thinking_budget_tokens thinking_token_budget reasoning_budget reasoning_budget_tokens"
c = g = None


def request(path, field, value, **more):
    """(status, Warning header, the request to ntx-computed, the reply's body)"""
    url, body = PATHS[path]
    body = dict(copy.deepcopy(body), **more)
    if value is not ABSENT:
        (body["options"] if path == "options" else body)[field] = value
    c.request = None
    status, head, text = g.request("POST", url, body)
    asked = copy.deepcopy(c.request)
    return status, head.get("warning", ""), asked, text


def sampling(path, field, value, **more):
    """What comes to ntx-computed; the client is told of nothing."""
    status, warning, asked, text = request(path, field, value, **more)
    equal((status, warning), (200, ""), (path, field, value, text[:300]))
    return dict(asked["sampling"], **{k: asked.get(k, 0) for k in ("max_tokens", "logprobs", "top_logprobs")})


def gives(paths, field, values, where, want):
    for path in paths:
        for value in values:
            got = sampling(path, field, value).get(where, 0)
            check(abs(got - want) < 1e-7, path, field, value, where, got, "is not", want)


def same(paths, field, values, like=ABSENT, **more):
    """The request to ntx-computed is that with `like`, apart from a random seed."""
    for path in paths:
        want = None
        for value in (like, *values):
            status, warning, asked, text = request(path, field, value, **more)
            equal((status, warning), (200, ""), (path, field, value, text[:300]))
            if asked:
                asked["sampling"].pop("seed", None)
            want = want if value is not like else (asked,)
            equal((asked,), want, "%s: %s is %r" % (path, field, value))


def refused(paths, field, values, **more):
    for path in paths:
        for value in values:
            status, _, _, text = request(path, field, value, **more)
            check(status == 400 and field.encode() in text, path, field, value, status, text[:300])


def ignored(paths, field, values):
    for path in paths:
        for value in values:
            status, warning, _, text = request(path, field, value)
            check(status == 200 and field in warning, path, field, value, warning, text[:300])


def answers(paths, field, values, words, **more):
    for path in paths:
        for value in values:
            status, _, _, text = request(path, field, value, **more)
            check(status == 200 and words in text, path, field, value, status, text[:300])


def cli(*options):
    """The sampling that `ntx generate` asks for."""
    c.request = None
    p = subprocess.run(
        [os.path.join(BIN, "ntx"), "generate", "a", "--socket", os.path.join(c.dir, "ntx.sock"), *options],
        capture_output=True,
        text=True,
    )
    equal(p.returncode, 0, (options, p.stderr))
    return dict(c.request["sampling"], max_tokens=c.request.get("max_tokens", 0))


def cli_gives(option, values, where, *wants):
    for value in values:
        got = cli(option, value).get(where, 0)
        check(any(abs(got - w) < 1e-7 for w in wants), "ntx generate", option, value, got, "is none of", wants)


def streams():
    for path in ("ochat", "otext"):
        url, body = PATHS[path]
        body = {k: v for k, v in body.items() if k != "stream"}
        for more, kind in ((body, "application/x-ndjson"), (dict(body, stream=None), "application/x-ndjson")):
            equal(g.request("POST", url, more)[1]["content-type"], kind, (path, more))
    for path in [*OPENAI, "claude", *LLAMA]:
        for more in ({}, {"stream": None}):
            kind = g.request("POST", PATHS[path][0], dict(PATHS[path][1], **more))[1]["content-type"]
            check("application/json" in kind, path, more, kind)


def seeds(values, want):
    for path in ["chat", "text", "options", *LLAMA]:
        for value in values:
            got = [sampling(path, "seed", value).get("seed", 0) for _ in range(2)]
            check((got[0] != got[1]) if want is None else got == [want] * 2, path, "seed", value, got)
    for value in [v for v in values if v not in (ABSENT, None)]:
        got = [cli("--seed", str(value)).get("seed", 0) for _ in range(2)]
        check((got[0] != got[1]) if want is None else got == [want] * 2, "--seed", value, got)


def biases():
    for path in ("chat", "text", "completion"):
        for value in ({"7": -100}, {"7": False}, [[7, -100]], [[7, False]]):
            status, warning, asked, text = request(path, "logit_bias", value)
            equal((status, warning), (200, ""), (path, value, text))
            equal([(b["token"], b["add"]) for b in asked["bias"]], [(7, -100)], (path, value))


def stops():
    same(["chat", "text", "options", *LLAMA], "stop", ["", [], [""]])
    same(["claude"], "stop_sequences", [[], [""]])


def thinks(field, value, want, path="chat"):
    """How a request thinks, as ntx-computed gets it."""
    got = request(path, field, value)
    equal((got[0], got[1]), (200, ""), (field, value, got[3][:300]))
    equal(got[2].get("think", b"") in want, True, (field, value, got[2].get("think")))


def stays(values):
    """What the field means for a known model is tested by models_test.py; here, that each value is read."""
    for field, paths in (("keep_alive", ["ochat", "otext", "oembed"]), ("ttl", [*OPENAI, "claude", "embed"])):
        for path in paths:
            for value in values:
                status, warning, _, text = request(path, field, value)
                equal((status, warning), (200, ""), (path, field, value, text))
    refused(["ochat"], "keep_alive", ["soon", "", [], {}])


def ctx_zero():
    p = subprocess.run([os.path.join(BIN, "ntx"), "run", "m.gguf", "a", "--ctx", "0"], capture_output=True, text=True)
    check(p.returncode and "--ctx" in p.stderr and "at least 1" in p.stderr, p)


def threads():
    for option in ("--threads", "--sessions"):
        p = subprocess.run(
            [os.path.join(BIN, "ntx"), "run", "nowhere.gguf", "a", option, "-1"], capture_output=True, text=True
        )
        check("nowhere.gguf" in p.stderr and option not in p.stderr, p)


def both(*functions):
    return lambda: [f() for f in functions]


SAMPLED = ["chat", "text", "options", *LLAMA]
LIMITS = [("chat", "max_tokens"), ("chat", "max_completion_tokens"), ("text", "max_tokens")]
LIMITS += [("responses", "max_output_tokens"), ("chat", "n_predict"), ("text", "n_predict")]
NONE = [0, "", [], {}, False]
ROWS = {
    ("stream", "absent"): streams,
    ("max_tokens, max_completion_tokens, max_output_tokens, n_predict of OpenAI's", "-1, absent"): lambda: [
        gives([path], field, [-1, ABSENT, None], "max_tokens", 0) for path, field in LIMITS
    ],
    ("max_tokens of /v1/completions", "0"): both(
        lambda: answers(["text"], "max_tokens", [0], b'"text":"a', echo=True),
        lambda: refused(["text", "chat"], "max_tokens", [0]),
    ),
    ("max_tokens of /v1/messages", "0, -1, absent"): lambda: refused(["claude"], "max_tokens", [0, -1, None]),
    ("n_predict of /completion, /infill", "-1, -2, absent"): lambda: gives(
        LLAMA, "n_predict", [-1, -2, ABSENT, None], "max_tokens", 0
    ),
    ("n_predict of /completion, /infill", "0"): lambda: answers(LLAMA, "n_predict", [0], b'"content":""'),
    ("num_predict of Ollama", "0, -1, -2, absent"): lambda: gives(
        ["options"], "num_predict", [0, -1, -2, ABSENT, None], "max_tokens", 0
    ),
    ("-n", "-1, -2"): lambda: cli_gives("-n", ["-1", "-2"], "max_tokens", 0),
    ("temperature; --temp", "0"): both(
        lambda: gives([*SAMPLED, "responses", "claude"], "temperature", [0], "temp", 0),
        lambda: cli_gives("--temp", ["0"], "temp", 0),
    ),
    ("top_k; --top-k", "0, -1"): both(
        lambda: gives([*SAMPLED, "claude"], "top_k", [0, -1], "top_k", 0),
        lambda: cli_gives("--top-k", ["0", "-1"], "top_k", 0),
    ),
    ("top_p; --top-p", "1"): both(
        lambda: gives([*SAMPLED, "responses", "claude"], "top_p", [1, 1.0], "top_p", 1),
        lambda: cli_gives("--top-p", ["1"], "top_p", 1),
    ),
    ("top_p; --top-p", "0"): both(
        lambda: gives([*SAMPLED, "responses", "claude"], "top_p", [0, 0.0], "top_p", SHARE),
        lambda: cli_gives("--top-p", ["0"], "top_p", SHARE),
    ),
    ("min_p; --min-p", "0"): both(
        lambda: gives(SAMPLED, "min_p", [0], "min_p", 0), lambda: cli_gives("--min-p", ["0"], "min_p", 0)
    ),
    ("typical_p; --typical-p", "1"): both(
        lambda: same(SAMPLED, "typical_p", [1]), lambda: cli_gives("--typical-p", ["1"], "typical_p", 1)
    ),
    ("typical_p; --typical-p", "0"): both(
        lambda: gives(SAMPLED, "typical_p", [0], "typical_p", SHARE),
        lambda: cli_gives("--typical-p", ["0"], "typical_p", SHARE),
    ),
    ("repeat_penalty, repetition_penalty; --repeat-penalty", "0, 1"): both(
        lambda: gives(SAMPLED, "repeat_penalty", [0], "repeat_penalty", 0),
        lambda: gives(["chat", "text"], "repetition_penalty", [0], "repeat_penalty", 0),
        lambda: same(SAMPLED, "repeat_penalty", [1]),
        lambda: same(["chat", "text"], "repetition_penalty", [1]),
        lambda: cli_gives("--repeat-penalty", ["0", "1"], "repeat_penalty", 0, 1),
    ),
    ("repeat_last_n; --repeat-last-n", "0"): both(
        lambda: [
            equal(sampling(p, "repeat_last_n", 0, **PENALTY[p == "options"]).get("repeat_penalty", 0), 0, p)
            for p in SAMPLED
        ],
        lambda: equal(cli("--repeat-penalty", "1.5", "--repeat-last-n", "0").get("repeat_penalty", 0), 0, "ntx"),
    ),
    ("repeat_last_n; --repeat-last-n", "-1"): both(
        lambda: gives(SAMPLED, "repeat_last_n", [-1], "repeat_last", MOST),
        lambda: same(SAMPLED, "repeat_last_n", [64]),
        lambda: cli_gives("--repeat-last-n", ["-1"], "repeat_last", MOST),
    ),
    (
        "presence_penalty, frequency_penalty; --presence-penalty, --frequency-penalty",
        "0",
    ): lambda: [
        (same(SAMPLED, k + "_penalty", [0]), cli_gives("--%s-penalty" % k, ["0"], k + "_penalty", 0))
        for k in ("presence", "frequency")
    ],
    ("mirostat; --mirostat", "0"): both(
        lambda: same(SAMPLED, "mirostat", [0]), lambda: cli_gives("--mirostat", ["0"], "mirostat", 0)
    ),
    ("mirostat; --mirostat", "1, 2"): lambda: [
        (gives(SAMPLED, "mirostat", [v], "mirostat", v), cli_gives("--mirostat", [str(v)], "mirostat", v))
        for v in (1, 2)
    ],
    ("seed; --seed", "-1, 4294967295, absent"): lambda: seeds([-1, 4294967295, ABSENT, None], None),
    ("seed; --seed", "0"): lambda: seeds([0], 0),
    ("n, best_of", "1, absent"): lambda: (same(["chat", "text"], "n", [1, None]), same(["text"], "best_of", [1, None])),
    ("n", "0"): lambda: refused(["chat", "text"], "n", [0]),
    ("logprobs of /v1/chat/completions", "false"): lambda: same(["chat"], "logprobs", [False, None]),
    ("logprobs of /v1/completions, top_logprobs", "0"): lambda: (
        gives(["text"], "logprobs", [0], "logprobs", 1),
        gives(["text"], "logprobs", [0], "top_logprobs", 0),
        same(["chat"], "top_logprobs", [0, None], logprobs=True),
    ),
    ("n_probs", "0"): lambda: same(["chat", "text", *LLAMA], "n_probs", [0]),
    ("logit_bias", "-100, false"): biases,
    ("logit_bias", "{}, []"): lambda: same(["chat", "text", "completion"], "logit_bias", [{}, [], None]),
    ("stop, stop_sequences", '"", [], [""]'): stops,
    ("echo", "false"): lambda: same(["text"], "echo", [False, None]),
    ("suffix", '""'): lambda: same(["text", "otext"], "suffix", ["", None]),
    ("grammar", '""'): lambda: same(["chat", "text", *LLAMA], "grammar", ["", None]),
    ("format of Ollama", '""'): lambda: same(["ochat", "otext"], "format", ["", None]),
    ("response_format", '{"type": "text"}'): lambda: same(["chat"], "response_format", [{"type": "text"}, None]),
    ("tools", "[]"): lambda: same(["chat", "responses", "claude", "ochat"], "tools", [[], None]),
    ("tool_choice without tools", '"none", "auto"'): lambda: (
        same(["chat", "responses"], "tool_choice", ["none", "auto", None]),
        same(["claude"], "tool_choice", [{"type": "none"}, {"type": "auto"}, None]),
    ),
    ("parallel_tool_calls without tools", "true, false"): lambda: same(
        ["chat", "responses"], "parallel_tool_calls", [True, False, None]
    ),
    ("thinking_budget and its other names", "0"): lambda: [thinks(f, 0, OFF) for f in THINKING.split()],
    ("thinking_budget and its other names", "-1"): lambda: [same(["chat"], f, [-1]) for f in THINKING.split()],
    ("reasoning_effort", '"none"'): lambda: thinks("reasoning_effort", "none", OFF),
    ("think of Ollama", "false"): lambda: (thinks("think", False, OFF, "ochat"), same(["ochat"], "think", [None])),
    ("system, instructions", '""'): lambda: (
        same(["claude", "otext"], "system", ["", None]),
        same(["claude"], "system", [[]]),
        same(["responses"], "instructions", ["", None]),
    ),
    ("images, context, template of /api/generate", '[], ""'): lambda: (
        same(["otext"], "images", [[], None]),
        same(["otext"], "context", [[], None]),
        same(["otext"], "template", ["", None]),
    ),
    ("keep_alive, ttl", '-1, "-1", "-1m"'): lambda: stays([-1, "-1", "-1m", "-1s"]),
    ("keep_alive, ttl", '0, "0", "0s"'): lambda: stays([0, "0", "0s", "0m", None]),
    ("num_ctx, num_gpu, num_thread, num_keep, num_batch of Ollama", "0, -1"): lambda: [
        same(["options"], "num_" + k, [0, -1, 4, None]) for k in ("ctx", "gpu", "thread", "keep", "batch")
    ],
    ("n_keep, id_slot, n_discard", "0, -1"): lambda: [
        same(["chat", "text", *LLAMA], k, [0, -1, 3]) for k in ("n_keep", "id_slot", "n_discard")
    ],
    ("t_max_predict_ms, t_max_prompt_ms", "0, -1"): lambda: [
        (same(["chat", "text", *LLAMA], k, [0, -1]), ignored(["chat", "completion"], k, [500]))
        for k in ("t_max_predict_ms", "t_max_prompt_ms")
    ],
    ("min_keep", "0"): lambda: (same(LLAMA, "min_keep", [0]), ignored(LLAMA, "min_keep", [2])),
    ("tfs_z of Ollama, length_penalty", "1"): lambda: (
        same(["options"], "tfs_z", [1, 1.0]),
        ignored(["options"], "tfs_z", [0.5]),
        same(["chat", "text"], "length_penalty", [1, 1.0]),
        ignored(["chat", "text"], "length_penalty", [0.5]),
    ),
    ("truncate_prompt_tokens", "-1"): lambda: (
        same(["chat", "text"], "truncate_prompt_tokens", [-1, None]),
        ignored(["chat", "text"], "truncate_prompt_tokens", [100]),
    ),
    ("skip_special_tokens, spaces_between_special_tokens", "true"): lambda: [
        (same(["chat", "text"], k, [True, None]), ignored(["chat", "text"], k, [False]))
        for k in ("skip_special_tokens", "spaces_between_special_tokens")
    ],
    ("penalize_newline", "true"): lambda: (
        same(SAMPLED, "penalize_newline", [True, None]),
        ignored(SAMPLED, "penalize_newline", [False]),
    ),
    ("xtc_probability, dry_multiplier, dynatemp_range", "0"): lambda: [
        (same(["chat", "text", *LLAMA], k, [0, 0.0, None]), refused(["chat", "text", *LLAMA], k, [0.5]))
        for k in ("xtc_probability", "dry_multiplier", "dynatemp_range")
    ],
    ("top_n_sigma", "0, -1"): lambda: (
        same(["chat", "text", *LLAMA], "top_n_sigma", [0, -1, -1.0, None]),
        refused(["chat", *LLAMA], "top_n_sigma", [1]),
    ),
    ("dimensions", "0"): lambda: (
        same(["embed", "oembed"], "dimensions", [0, None]),
        refused(["embed", "oembed"], "dimensions", [64]),
    ),
    ("truncation", '"disabled"'): lambda: (
        same(["responses"], "truncation", ["disabled", None]),
        ignored(["responses"], "truncation", ["auto"]),
    ),
    ("--threads, --sessions", "-1"): threads,
    ("--ctx", "0"): ctx_zero,
}
OFF = ("off", b"off")
PENALTY = ({"repeat_penalty": 1.5}, {"options": {"repeat_penalty": 1.5}})
OUT_OF_RANGE = (
    ("chat", "top_k", -2),
    ("completion", "n_predict", -3),
    ("options", "num_predict", -3),
    ("completion", "repeat_last_n", -2),
    ("text", "max_tokens", -2),
    ("chat", "typical_p", 1.5),
    ("completion", "mirostat", 3),
    ("chat", "temperature", 3),
    ("completion", "temperature", -1),
    ("chat", "logit_bias", {"7": True}),
)
PASSED_ON = (
    ("chat", "repeat_last_n", 64, "repeat_last", 64),
    ("options", "repeat_last_n", 7, "repeat_last", 7),
    ("completion", "typical_p", 0.5, "typical_p", 0.5),
    ("completion", "temperature", 5, "temp", 5),
    ("options", "mirostat_tau", 3, "mirostat_tau", 3),
    ("chat", "mirostat_tau", 0, "mirostat_tau", 0.01),
    ("text", "mirostat_eta", 0.5, "mirostat_eta", 0.5),
    ("chat", "n_predict", 7, "max_tokens", 7),
    ("text", "n_predict", 7, "max_tokens", 7),
    ("chat", "seed", 5, "seed", 5),
)
ASKS_NOTHING = {
    "chat": "n_probs store verbosity prediction functions audio lora samplers response_fields",
    "text": "n_probs lora samplers return_tokens",
    "responses": "previous_response_id conversation background include store max_tool_calls top_logprobs",
    "claude": "mcp_servers container context_management betas",
    "ochat": "logprobs truncate shift",
    "otext": "context template logprobs width height steps",
    "completion": "n_probs lora samplers post_sampling_probs",
    "infill": "n_probs lora n_indent",
}


def table():
    with open(DOC, encoding="utf-8") as f:
        part = f.read().split("## Values with a meaning\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", part, re.M)
    return [(field.replace("`", ""), value.replace("`", "")) for field, value, _ in rows if field != "field"]


def main():
    global c, g
    rows = table()
    equal(len(set(rows)), len(rows), "rows that are there once")
    equal(set(rows) ^ set(ROWS), set(), "rows without a check, or checks without a row")
    with tempfile.TemporaryDirectory(prefix="ntx-values-") as tmp:
        c = Computed(tmp)
        c.text = "Yes."
        with Gateway(c) as g:
            for row in rows:
                ROWS[row]()
            for path, field, value in OUT_OF_RANGE:
                refused([path], field, [value])
            for path, field, value, where, want in PASSED_ON:
                gives([path], field, [value], where, want)
            for path, fields in ASKS_NOTHING.items():
                for field in fields.split():
                    same([path], field, [None, *NONE])
    print("%d rows" % len(rows))


main()
