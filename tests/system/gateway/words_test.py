#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ntx-gateway: texts to tokens and back, infill, and embeddings.

Embeddings are compared with the states that `ntx logits --steps` prints.
"""

import base64
import json
import math
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import BIN, Daemons, Gateway, check, equal, events, make_model  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-gateway-")
SHAPE = [
    "--layers",
    "3",
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
    "--ctx",
    "512",
    "--vocab-size",
    "2400",
]
plain = make_model(os.path.join(tmp.name, "m.gguf"), *SHAPE)
filling = os.path.join(tmp.name, "fim.gguf")
with open(plain, "rb") as f:
    data = f.read()
for old, new in (
    (b"[unused2000]", b"<fim_prefix>"),
    (b"[unused2001]", b"<fim_suffix>"),
    (b"[unused2002]", b"<fim_middle>"),
):
    equal(data.count(old), 1, "places of %r in the model" % old)
    data = data.replace(old, new)
with open(filling, "wb") as f:
    f.write(data)
FIM = [2000, 2001, 2002]


def ntx(*args, stdin=None):
    return subprocess.run([os.path.join(BIN, "ntx"), *args], input=stdin, capture_output=True, check=True).stdout


def tokens(g):
    for text in ("Hello there, world", "", "  two\n\nlines äöü €", "x" * 5000):
        want = json.loads(ntx("tokenize", plain, "--no-bos", "--no-special", stdin=text.encode()))
        equal(g.post("/tokenize", {"content": text, "parse_special": False}), (200, {"tokens": want}), text[:20])
        said = g.post("/tokenize", {"content": text, "parse_special": False, "with_pieces": True})[1]["tokens"]
        equal([t["id"] for t in said], want, "with pieces: " + text[:20])
        pieces = [bytes(t["piece"]) if isinstance(t["piece"], list) else t["piece"].encode() for t in said]
        equal(b"".join(pieces).decode(), text, "pieces of " + text[:20])
        if want:
            equal(g.post("/detokenize", {"tokens": want}), (200, {"content": text, "prompt": text}), text[:20])
    with_bos = json.loads(ntx("tokenize", plain, stdin=b"Hello"))
    equal(
        g.post("/tokenize", {"content": "Hello", "add_special": True})[1]["tokens"],
        with_bos,
        "with the beginning of a text",
    )
    equal(g.post("/detokenize", {"tokens": []}), (200, {"content": "", "prompt": ""}), "no tokens")
    # vLLM's names of the same fields
    equal(
        g.post("/tokenize", {"model": "x", "prompt": "Hello"}),
        (200, {"count": len(with_bos), "max_model_len": 512, "tokens": with_bos, "token_strs": None}),
        "vLLM's",
    )
    equal(
        g.post("/tokenize", {"model": "x", "prompt": "Hello", "add_special_tokens": False, "return_token_strs": False})[
            1
        ]["tokens"],
        with_bos[1:],
        "vLLM's, without the beginning",
    )
    equal(g.post("/detokenize", {"model": "x", "tokens": with_bos[1:]})[1]["prompt"], "Hello", "vLLM's")
    for path, bad, words in (
        ("/tokenize", {}, "'content' must be a string"),
        ("/tokenize", {"content": 5}, "'content'"),
        ("/tokenize", {"prompt": 5}, "must be a string"),
        ("/tokenize", {"prompt": "x", "content": "x"}, "must be a string"),
        ("/tokenize", {"messages": [{}]}, "'messages' is not supported"),
        ("/tokenize", {"content": "x" * (8 << 20) + "y"}, "8 MiB are the most"),
        ("/detokenize", {"tokens": "x"}, "'tokens'"),
        ("/detokenize", {"tokens": [99999]}, "not one of the vocabulary's"),
        ("/detokenize", {"tokens": [-1]}, "list"),
        ("/detokenize", {"tokens": [1, "x"]}, "list"),
        ("/detokenize", {"tokens": [[1], [2]]}, "list of tokens"),
    ):
        status, e = g.post(path, bad)
        check(status in (400, 413) and words in e["error"]["message"], path, str(bad)[:50], status, e)


def unit(v):
    n = math.sqrt(sum(x * x for x in v))
    return [x / n for x in v]


def reference(ids):
    """The mean of the states after the last layer, each scaled to a root mean square of 1; scaled to length 1."""
    steps = os.path.join(tmp.name, "steps")
    ntx("logits", plain, "--tokens", ",".join(map(str, ids)), "--steps", steps, "--step-values", "--quiet")
    last = None
    with open(steps) as f:
        for line in f:
            s = json.loads(line)
            if s.get("buffer") == "H" and s["layer"] == 2:
                last = [struct.unpack("<64f", base64.b64decode(v)) for v in s["values"]]
    equal(len(last), len(ids), "rows of the steps")
    mean = [0.0] * len(last[0])
    for v in last:
        rms = math.sqrt(sum(x * x for x in v) / len(v))
        mean = [m + x / rms for m, x in zip(mean, v)]
    return unit(mean)


def embeddings(g):
    text = "The quick brown fox jumps over the lazy dog"
    ids = json.loads(ntx("tokenize", plain, stdin=text.encode()))
    status, a = g.post("/v1/embeddings", {"input": text, "model": "any"})
    equal(
        (status, a["object"], a["model"], a["usage"], len(a["data"])),
        (200, "list", "any", {"prompt_tokens": len(ids), "total_tokens": len(ids)}, 1),
        "an answer",
    )
    equal((a["data"][0]["object"], a["data"][0]["index"]), ("embedding", 0), "its entry")
    v, want = a["data"][0]["embedding"], reference(ids)
    check(len(v) == 64 and max(abs(x - y) for x, y in zip(v, want)) < 1e-5, "an embedding", v[:4], want[:4])
    equal(g.post("/v1/embeddings", {"input": ids})[1]["data"][0]["embedding"], v, "of tokens")
    coded = g.post("/v1/embeddings", {"input": text, "encoding_format": "base64"})[1]["data"][0]["embedding"]
    check(max(abs(x - y) for x, y in zip(struct.unpack("<64f", base64.b64decode(coded)), v)) < 1e-7, "base64")
    status, a = g.post("/v1/embeddings", {"input": ["Hello", text, "x" * 300]})
    equal([e["index"] for e in a["data"]], [0, 1, 2], "their numbers")
    equal(a["data"][1]["embedding"], v, "one of several")
    check(a["data"][0]["embedding"] != v, "two texts have one embedding")
    for bad, words in (
        ({}, "'input' must be"),
        ({"input": []}, "'input' must be"),
        ({"input": [""]}, None),
        ({"input": ["x"] * 257}, "257"),
        ({"input": "x", "dimensions": 8}, "not supported"),
        ({"input": "x", "encoding_format": "int8"}, "float or base64"),
        ({"input": "a b " * 600}, "context"),
        ({"input": [7, 5000]}, "not one of"),
    ):
        status, e = g.post("/v1/embeddings", bad)
        check(words is None or (status == 400 and words in e["error"]["message"]), bad, status, e)
    ollama_embeddings(g, text, v, len(ids))
    return v


def ollama_embeddings(g, text, v, n):
    status, a = g.post(
        "/api/embed",
        {"model": "any", "input": text, "options": {"temperature": 0}, "keep_alive": "5m", "truncate": True},
    )
    check(a.pop("total_duration") > 0, "a duration")
    equal(
        (status, a),
        (200, {"model": "random", "embeddings": [v], "load_duration": 0, "prompt_eval_count": n}),
        "Ollama's",
    )
    both = g.post("/v1/embeddings", {"input": ["Hello", text]})[1]
    a = g.post("/api/embed", {"input": ["Hello", text]})[1]
    equal(
        (a["embeddings"], a["prompt_eval_count"]),
        ([e["embedding"] for e in both["data"]], both["usage"]["prompt_tokens"]),
        "Ollama's, of two",
    )
    equal(g.post("/api/embeddings", {"model": "any", "prompt": text}), (200, {"embedding": v}), "Ollama's older one")
    equal(
        (
            g.post("/api/embed", {"input": []})[1]["embeddings"],
            g.post("/api/embed", {"input": ""})[1]["embeddings"],
            g.post("/api/embeddings", {"prompt": ""})[1],
        ),
        ([], [], {"embedding": []}),
        "of nothing",
    )
    long = "a b " * 600
    ids = json.loads(ntx("tokenize", plain, stdin=long.encode()))
    check(len(ids) > 512, "it is too long")
    equal(
        g.post("/api/embed", {"input": long})[1]["embeddings"][0],
        g.post("/v1/embeddings", {"input": ids[:512]})[1]["data"][0]["embedding"],
        "what is too long is cut",
    )
    for path, bad, words in (
        ("/api/embed", {"input": 5}, "'input' must be"),
        ("/api/embed", {"input": "x", "dimensions": 8}, "not supported"),
        ("/api/embed", {"input": long, "truncate": False}, "context"),
        ("/api/embed", {"input": "x", "truncate": 5}, "truncate"),
        ("/api/embeddings", {"prompt": 5}, "must be a string"),
    ):
        status, e = g.post(path, bad)
        check(status == 400 and list(e) == ["error"] and words in e["error"], path, str(bad)[:60], status, e)


def infill(d, g):
    def ids(text):
        return json.loads(ntx("tokenize", filling, "--no-bos", "--no-special", stdin=text.encode()))

    bos = json.loads(ntx("tokenize", filling, stdin=b"Hello"))[: -len(ids("Hello"))]
    prompt = bos + FIM[:1] + ids("def f(x):\n    y = ") + FIM[1:2] + ids("\n    return y") + FIM[2:]
    c = d.client()
    a = c.ask(tokens=prompt, raw=True, temp=0, max_tokens=8, ignore_eos=False, sampling={"repeat_penalty": 1})
    c.close()
    ask = {
        "input_prefix": "def f(x):\n",
        "prompt": "    y = ",
        "input_suffix": "\n    return y",
        "temperature": 0,
        "n_predict": 8,
        "cache_prompt": True,
        "samplers": ["top_k"],
    }
    status, said = g.post("/infill", ask)
    equal(
        (status, said["content"], said["stop"], said["tokens_predicted"], said["tokens_evaluated"]),
        (200, a.text.decode(), True, len(a.tokens), len(prompt)),
        "what goes between",
    )
    status, head, body = g.request("POST", "/infill", dict(ask, stream=True))
    said = [json.loads(e) for e in events(body)]
    equal(
        ("".join(s["content"] for s in said), [s["stop"] for s in said][-1], head["content-type"]),
        (a.text.decode(), True, "text/event-stream"),
        "as a stream",
    )
    said = g.post("/infill", dict(ask, n_predict=0))[1]
    equal((said["content"], said["tokens_predicted"], said["tokens_evaluated"]), ("", 0, len(prompt)), "a warm prompt")
    more = g.post("/infill", dict(ask, input_extra=[{"filename": "a.py", "text": "def f(x):"}], input_prefix=""))[1]
    equal(more["content"], a.text.decode(), "what stands before")
    for bad, words in (
        (dict(ask, input_extra=[5]), "an object with a text"),
        (dict(ask, n_predict=-3), "n_predict"),
        (dict(ask, n_indent=4), "not supported"),
        (dict(ask, input_suffix=5), "'input_suffix'"),
    ):
        status, e = g.post("/infill", bad)
        check(status == 400 and words in e["error"]["message"], bad, e)


with Daemons() as d, Gateway(d) as g:
    c = d.client()
    status, e = g.post("/tokenize", {"content": "x"})
    check(status == 503 and "no model is loaded" in e["error"]["message"], status, e)
    c.load(plain, ctx=512, sessions=2, threads=1)
    tokens(g)
    whole = embeddings(g)
    status, e = g.post("/infill", {"input_prefix": "a", "input_suffix": "b"})
    check(status == 400 and "no tokens to fill in" in e["error"]["message"], status, e)
    c.load(plain, ctx=512, sessions=2, threads=2, max_rows=3, ram_bytes=12 << 20)  # cut into passes, and streamed
    equal(embeddings(g), whole, "the bits of an embedding, its prompt cut otherwise")
    c.load(filling, ctx=512, sessions=2, threads=1)
    infill(d, g)
    c.close()
