#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ntx-gateway with OpenAI's API.

Exact shapes, the text that ntx-computed itself gives, refusals, and clients that leave.
"""

import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import (
    BIN,
    Daemons,
    FIXED,
    Gateway,
    HELLO,
    MODEL,
    PLAN,
    check,
    equal,
    events,
    make_model,
    patience,
    wait_for,
)  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-gateway-")
model = make_model(os.path.join(tmp.name, "m.gguf"), *MODEL, "--name", "tiny \"one\"")
SAMPLING = {"temp": 0.7, "top_k": 20, "top_p": 0.9, "min_p": 0.1, "repeat_penalty": 1}


def mask(text):
    """Replaces what differs from answer to answer."""
    text = re.sub(r'"id":"(chatcmpl|cmpl)-[0-9a-f]{24}"', r'"id":"\1-ID"', text)
    text = re.sub(r'"system_fingerprint":"ntx-[^"]+"', '"system_fingerprint":"ntx"', text)
    text = re.sub(r',"timings":\{[^}]*\}', "", text)
    return re.sub(r'"created":17\d{8}|"created":1[89]\d{8}|"created":[2-9]\d{9}', '"created":0', text)


def dumps(text):
    return re.sub(
        r"\\u[0-9a-f]{4}", lambda m: "\\u" + m[0][2:].upper(), json.dumps(text, ensure_ascii=False)
    )  # as jansson writes them


def straight(d, seed=7, **options):
    """The answer that ntx-computed gives to a client of its own socket."""
    c = d.client()
    a = c.ask(temp=SAMPLING["temp"], seed=seed, ignore_eos=True, max_tokens=12, sampling=SAMPLING, **options)
    c.close()
    return a.text.decode(), a


def timings(t, n):
    """Checks the figures of an answer of 12 tokens to a prompt of n tokens that was cached."""
    equal((t["cache_n"], t["prompt_n"], t["predicted_n"], t["thinking_n"]), (n - 1, 1, 12, 0), "counts in the timings")
    check(t["prompt_ms"] > 0 and t["predicted_ms"] > 0 and t["queue_ms"] >= 0, "times in the timings", t)
    for part in ("prompt", "predicted"):
        each = t[part + "_ms"] / t[part + "_n"]
        check(abs(t[part + "_per_token_ms"] - each) < 1e-6 * each, "time of a token", t)
        check(abs(t[part + "_per_second"] - 1000 / each) < 1e-3 / each * 1000, "tokens a second", t)


def chat(d, g):
    want, a = straight(d, messages=[{"role": m["role"], "text": m["content"]} for m in HELLO])
    n = a.started["prompt_tokens"]
    usage = (
        '{"prompt_tokens":%d,"completion_tokens":12,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d},'
        '"completion_tokens_details":{"reasoning_tokens":0}}' % (n, n + 12, n - 1)
    )  # it was asked before
    status, head, body = g.request("POST", "/v1/chat/completions", dict(FIXED, messages=HELLO, model="any"))
    equal((status, head["content-type"]), (200, "application/json"), "chat")
    start = (
        '{"id":"chatcmpl-ID","object":"chat.completion%s","created":0,"model":"tiny--one-"'
        ',"system_fingerprint":"ntx","choices":['
    )
    equal(
        mask(body.decode()),
        start % ""
        + (
            '{"index":0,"message":{"role":"assistant","content":%s},"logprobs":null,"finish_reason":"length"}],'
            '"usage":%s}'
        )
        % (dumps(want), usage),
        "a chat's answer",
    )
    timings(json.loads(body)["timings"], n)
    status, head, body = g.request("POST", "/v1/chat/completions", dict(FIXED, messages=HELLO, stream=True))
    timings(json.loads(events(body)[-2])["timings"], n)
    check(all("timings" not in json.loads(e) for e in events(body)[:-2]), "timings before the end of a stream")
    equal(
        (status, head["content-type"], head["cache-control"]), (200, "text/event-stream", "no-cache"), "a stream's head"
    )
    chunk = start % ".chunk" + '{"index":0,"delta":%s,"logprobs":null,"finish_reason":%s}]}'
    said = [mask(e) for e in events(body)]
    equal(
        (said[0], said[-2], said[-1]),
        (chunk % ('{"role":"assistant","content":""}', "null"), chunk % ("{}", '"length"'), "[DONE]"),
        "a stream's frame",
    )
    pieces = [json.loads(e)["choices"][0]["delta"]["content"] for e in said[1:-2]]
    equal(said[1:-2], [chunk % ('{"content":%s}' % dumps(p), "null") for p in pieces], "its chunks")
    equal("".join(pieces), want, "a stream's text")
    status, head, body = g.request(
        "POST", "/v1/chat/completions", dict(FIXED, messages=HELLO, stream=True, stream_options={"include_usage": True})
    )
    said = [mask(e) for e in events(body)]
    equal(said[-2], start % ".chunk" + '],"usage":%s}' % usage, "the usage of a stream")
    check(all(e.endswith(',"usage":null}') for e in said[:-2]), "usage before its end:", said[0])
    parts = [
        dict(HELLO[0], role="developer"),
        {"role": "user", "content": [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]},
    ]
    equal(
        g.post("/v1/chat/completions", dict(FIXED, messages=parts))[1]["choices"][0]["message"]["content"],
        want,
        "content in parts",
    )


def choices(d, g):
    """Each of n choices has its own seed, and the text of a single request with this seed."""
    asked = [straight(d, seed=7 + i, prompt="Once upon a time")[0] for i in range(3)]
    check(len(set(asked)) == 3, "seeds make no difference:", asked)
    status, r = g.post("/v1/completions", dict(FIXED, prompt="Once upon a time", n=3))
    equal([c["text"] for c in r["choices"]], asked, "n = 3")
    equal([c["index"] for c in r["choices"]], [0, 1, 2], "their numbers")
    one = g.post("/v1/completions", dict(FIXED, prompt="Once upon a time"))[1]["usage"]
    equal(
        (r["usage"]["prompt_tokens"], r["usage"]["completion_tokens"]),
        (one["prompt_tokens"], 36),
        "the prompt counts once",
    )
    both = straight(d, prompt="A dog")[0], straight(d, tokens=[1, 5, 9])[0]
    for prompt in (["A dog", [1, 5, 9]],):
        body = g.request("POST", "/v1/completions", dict(FIXED, prompt=prompt, stream=True))[2]
        texts = ["", ""]
        for e in events(body)[:-1]:
            c = json.loads(e)["choices"][0]
            texts[c["index"]] += c["text"]
        equal(tuple(texts), both, "two prompts in one stream")


def text(d, g):
    want = straight(d, prompt="A dog")[0]
    status, head, body = g.request("POST", "/v1/completions", dict(FIXED, prompt="A dog"))
    start = (
        '{"id":"cmpl-ID","object":"text_completion","created":0,"model":"tiny--one-"'
        ',"system_fingerprint":"ntx","choices":[{"text":%s,"index":0,"logprobs":null,"finish_reason":%s}]'
    )
    check(
        mask(body.decode()).startswith(start % (dumps(want), '"length"') + ',"usage":{"prompt_tokens":'),
        "a completion:",
        mask(body.decode()),
    )
    stop = next(want[i : i + 3] for i in range(3, len(want)) if "\ufffd" not in want[i : i + 3])  # of whole characters
    status, r = g.post("/v1/completions", dict(FIXED, prompt="A dog", stop=[stop, "never"]))
    equal(
        (r["choices"][0]["text"], r["choices"][0]["finish_reason"]), (want[: want.index(stop)], "stop"), "a stop string"
    )
    said = [mask(e) for e in events(g.request("POST", "/v1/completions", dict(FIXED, prompt="A dog", stream=True))[2])]
    equal((said[-2], said[-1]), (start % ('""', '"length"') + "}", "[DONE]"), "the end of a completion's stream")
    c = d.client()
    a = c.ask(
        prompt="A dog",
        temp=0,
        ignore_eos=True,
        max_tokens=24,
        sampling={"presence_penalty": -2, "frequency_penalty": -1.5},
    )
    b = c.ask(prompt="A dog", temp=0, ignore_eos=True, max_tokens=24)
    c.close()
    check(len(set(a.tokens)) < len(set(b.tokens)), "penalties below 0 bring no repetition:", a.tokens, b.tokens)
    equal(
        g.post(
            "/v1/completions",
            {
                "prompt": "A dog",
                "max_tokens": 24,
                "temperature": 0,
                "ignore_eos": True,
                "presence_penalty": -2,
                "frequency_penalty": -1.5,
                "min_p": 0,
                "top_k": 0,
            },
        )[1]["choices"][0]["text"],
        a.text.decode(),
        "penalties",
    )
    equal(
        g.post("/v1/completions", {"prompt": "A dog", "max_tokens": 12, "temperature": 0})[1]["choices"],
        g.post("/v1/completions", {"prompt": "A dog", "max_tokens": 12, "temperature": 0, "seed": 3, "top_k": None})[1][
            "choices"
        ],
        "greedy answers",
    )


REFUSED = [
    ({"messages": []}, "messages", None, "at least one"),
    ({}, "messages", None, "at least one"),
    ({"messages": [{"role": "critic", "content": "x"}]}, "messages", "unsupported_parameter", "role 'critic'"),
    ({"messages": [{"content": "x"}]}, "messages", None, "no role"),
    ({"messages": [{"role": "user", "content": 1}]}, "messages", None, "content"),
    (
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        "messages",
        "unsupported_parameter",
        "'input_audio'",
    ),
    (dict(messages=HELLO, tools=[{"type": "function"}]), "tools", None, "with a name"),
    (dict(messages=HELLO, top_logprobs=2), "top_logprobs", None, "needs 'logprobs'"),
    (dict(messages=HELLO, logprobs=True, top_logprobs=21), "top_logprobs", None, "from 0 to 20"),
    (dict(messages=HELLO, logit_bias={"x": 1}), "logit_bias", None, "by its number"),
    (dict(messages=HELLO, logit_bias={"5": 101}), "logit_bias", None, "from -100 to 100"),
    (dict(messages=HELLO, logit_bias={"70000": 1}), None, None, "not one of the vocabulary"),
    (dict(messages=HELLO, presence_penalty=2.5), "presence_penalty", None, "from -2 to 2"),
    (
        dict(messages=HELLO, response_format={"type": "xml"}),
        "response_format",
        "unsupported_parameter",
        "text, json_object or json_schema",
    ),
    (
        dict(messages=HELLO, response_format={"type": "json_schema", "json_schema": {"schema": {"not": {}}}}),
        None,
        None,
        "contradicts itself",
    ),
    (
        dict(messages=HELLO, response_format={"type": "json_schema", "json_schema": {}}),
        "response_format",
        None,
        "must have a schema",
    ),
    (dict(messages=HELLO, tool_choice="required"), "tool_choice", None, "there is none"),
    (dict(messages=HELLO, tool_choice="some"), "tool_choice", "unsupported_parameter", "names a function"),
    (dict(messages=HELLO, temperatur=1), "temperatur", "unsupported_parameter", "is 'temperature' meant"),
    (dict(messages=HELLO, temperature=3), "temperature", None, "from 0 to 2"),
    (dict(messages=HELLO, temperature="1"), "temperature", None, "from 0 to 2"),
    (dict(messages=HELLO, n=0), "n", None, "from 1 to 16"),
    (dict(messages=HELLO, max_tokens=-2), "max_tokens", None, "an integer from 1"),
    (dict(messages=HELLO, stream="yes"), "stream", None, "true or false"),
    (dict(messages=HELLO, stop=["a"] * 17), "stop", None, "17 strings"),
    (dict(messages=HELLO, stop=[5]), "stop", None, "1 to 4096 bytes"),
    (dict(messages=HELLO, stream_options={"include_usage": True}), "stream_options", None, "streams only"),
    (dict(messages=[{"role": "user", "content": "a " * 3000}]), "messages", "context_length_exceeded", "tokens"),
    (
        dict(messages=[{"role": "user", "content": "a " * 3000}], stream=True),
        "messages",
        "context_length_exceeded",
        "tokens",
    ),
    ([1], None, None, "a JSON object"),
    (b'{"messages": [', None, None, "no JSON"),
    (b'{"n": 1, "n": 2}', None, None, "no JSON"),
    (b"", None, None, "the body is empty"),
    (b'{"messages": [{"role": "user", "content": "\xff"}]}', None, None, "no JSON"),
    (b"[" * 100000, None, None, "no JSON"),
]


def refusals(g):
    for prompt in ("", ["A dog", ""]):
        code, e = g.post("/v1/completions", {"prompt": prompt})
        equal(
            (code, e["error"]["message"]),
            (400, "'prompt' has an empty text: there is nothing to read"),
            "an empty prompt",
        )
    for body, param, code, words in REFUSED:
        status, head, text = g.request("POST", "/v1/chat/completions", body)
        e = json.loads(text)
        equal(
            (status, head["content-type"]),
            (400, "application/json"),
            "status of %r" % (body if len(str(body)) < 200 else "a long one"),
        )
        equal(list(e), ["error"], "an error's frame")
        equal(
            (list(e["error"]), e["error"]["type"], e["error"]["param"], e["error"]["code"]),
            (["message", "type", "param", "code"], "invalid_request_error", param, code),
            e,
        )
        check(words in e["error"]["message"], e, "lacks", words)
    for fine in (
        dict(
            tools=[],
            logprobs=False,
            logit_bias={},
            presence_penalty=0,
            response_format={"type": "text"},
            tool_choice="none",
            user="me",
            n=1,
            stop=None,
            store=False,
        ),
    ):
        equal(g.post("/v1/chat/completions", dict(FIXED, messages=HELLO, **fine))[0], 200, "what asks for nothing")
    for path, status, code in (("/v1/nothing", 404, "not_found"), ("/../etc/passwd", 404, "not_found")):
        s, e = g.post(path, {})
        equal((s, e["error"]["code"]), (status, code), path)
    for path in ("/%00", "/health%00x", "/v1/models%00", "/health%2f%00?a=b"):  # not the path that ends there
        equal(g.get(path)[0], 404, path)
    equal(g.get("/heal%74h?a=%00")[0], 200, "an escaped path")
    for seed in ("-2", "-9223372036854775808", "9223372036854775807"):
        texts = [
            g.post(
                "/v1/completions",
                ('{"prompt": "A dog", "max_tokens": 8, "temperature": 2, "seed": %s}' % seed).encode(),
            )[1]["choices"]
            for _ in range(2)
        ]
        equal(texts[0], texts[1], "twice the seed " + seed)
    for seed in ("9223372036854775808", "18446744073709551615", "-9223372036854775809"):
        status, e = g.post("/v1/completions", ('{"prompt": "A dog", "seed": %s}' % seed).encode())
        check(status == 400 and "of a seed, too" in e["error"]["message"] and seed in e["error"]["message"], seed, e)
    equal(g.get("/v1/completions")[1]["error"]["message"], "/v1/completions is for POST", "GET")
    equal(
        [g.request(*r)[1]["allow"] for r in (("GET", "/v1/completions"), ("POST", "/health", b"{}"))],
        ["POST", "GET, HEAD"],
        "methods that would do",
    )
    equal(g.post("/v1/completions", {"prompt": {}})[1]["error"]["param"], "prompt", "no prompt")


def views(g):
    status, r = g.get("/v1/models")
    created = r["data"][0].pop("created")
    check(abs(created - time.time()) < 3600, "created", created)
    equal(
        r,
        {
            "object": "list",
            "data": [{"id": "tiny--one-", "object": "model", "owned_by": "ntx", "context_length": 512}],
        },
        "models",
    )
    one = g.get("/v1/models/tiny--one-")
    check(abs(one[1].pop("created") - created) < 2 and one == (200, r["data"][0]), "a model by its name", one)
    equal(g.request("HEAD", "/v1/models/tiny--one-")[::2], (200, b""), "HEAD of it")
    for other in ("tiny", "tiny--one-x", "a/b", "..%2f..", "%ff"):
        status, e = g.get("/v1/models/" + other)
        check(
            status == 404 and "see /v1/models" in e["error"]["message"] and e["error"]["code"] == "not_found",
            other,
            e,
        )
    equal(
        [g.get("/v1/models/")[0], g.post("/v1/models/x", {})[0], g.get("/v1/models/x%00")[0]],
        [404, 405, 404],
        "no model's path",
    )
    equal(g.get("/health"), (200, {"status": "ok"}), "health")
    status, head, body = g.request("GET", "/metrics")
    check(status == 200 and b"\nntx_up 1\n" in body and "version=0.0.4" in head["content-type"], "metrics", body[:200])
    status, head, body = g.request("GET", "/")
    with open(os.path.join(os.environ["NTX_SOURCE"], "client", "gateway", "page.html"), "rb") as f:
        equal((status, head["content-type"], body), (200, "text/html; charset=utf-8", f.read()), "the page")
    check(
        "default-src 'none'" in head["content-security-policy"]
        and not re.search(rb"https?:|//[a-z]+\.|@import|url\(", body),
        "the page loads something from elsewhere",
    )
    equal(g.request("HEAD", "/health")[::2], (200, b""), "HEAD")


def lookers(d, g):
    """Many clients ask for the status while ntx-computed does not answer.

    They occupy two of its connections, and none of those that requests for answers need.
    """
    import concurrent.futures

    def taken():
        with open("/proc/net/unix") as f:
            return sum(line.endswith(d.socket() + "\n") for line in f)

    def threads():
        with open("/proc/%d/status" % g.p.pid) as f:
            return int(next(line for line in f if line.startswith("Threads")).split()[1])

    before, idle = taken(), threads()
    with concurrent.futures.ThreadPoolExecutor(100) as pool:
        with d.held("computed"):
            asked = [pool.submit(g.request, "GET", "/health", timeout=60) for _ in range(100)]
            wait_for(lambda: threads() >= idle + 100 or any(f.done() for f in asked), 20, "all to ask")
            check(taken() <= before + 1, "connections that are taken:", before, taken())
        equal({f.result()[0] for f in asked}, {200}, "how it is")
        equal(
            {f.result()[0] for f in [pool.submit(g.request, "GET", "/v1/models") for _ in range(100)]},
            {200},
            "many at once",
        )


def status(d):
    k = d.client()
    s = json.loads(k.status())
    k.close()
    return s


def leaving(d, g):
    """A client leaves while ntx-iod is stopped, so that the pass does not end.

    ntx-computed must notice all the same, whether the answer is a stream or not.
    """
    for stream in (False, True):
        with d.held("iod"):
            body = json.dumps({"prompt": "A dog", "max_tokens": 100, "ignore_eos": True, "stream": stream}).encode()
            s = socket.create_connection(("127.0.0.1", g.port))
            s.sendall(
                b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
            )
            wait_for(lambda: status(d)["sessions"] == 1, 10, "a session that runs")
            s.close()
            wait_for(lambda: status(d)["sessions"] == 0, 10, "its end")
        equal(g.post("/v1/completions", dict(FIXED, prompt="A dog"))[0], 200, "the next answer")


def crowd(d, g):
    """More clients at once than seats: all are answered, each with its own text."""
    import concurrent.futures

    want = {
        seed: g.post("/v1/completions", dict(FIXED, prompt="A dog", seed=seed))[1]["choices"][0]["text"]
        for seed in range(4)
    }
    with concurrent.futures.ThreadPoolExecutor(40) as pool:
        got = list(
            pool.map(
                lambda i: (i % 4, g.post("/v1/completions", dict(FIXED, prompt="A dog", seed=i % 4), timeout=200)),
                range(40),
            )
        )
    for seed, (code, r) in got:
        equal((code, r.get("choices", [{}])[0].get("text")), (200, want[seed]), "one of a crowd")


def without(g):
    code, said = g.get("/health")
    equal(
        (code, said["status"], said["error"]["code"], said["error"]["type"]),
        (503, "down", 503, "unavailable_error"),
        "health without daemons",
    )
    code, e = g.post("/v1/completions", {"prompt": "a"})
    equal((code, e["error"]["type"], e["error"]["code"]), (503, "server_error", "unavailable"), "without daemons")
    equal(g.request("POST", "/v1/completions", {"prompt": "a"})[1].get("retry-after"), "5", "when to ask again")
    equal(g.request("POST", "/v1/completions", {"prompt": 1})[1].get("retry-after"), None, "what fails again")


def invented(d):
    """Without a chat template an answer ends before a turn that the model invents, and the next turn knows nothing of
    it. The model is made to write it by a grammar."""
    with Gateway(d) as g:
        for mark in ("User", "Assistant"):
            body = {"messages": HELLO, "max_tokens": 60, "grammar": 'root ::= "hi" "\\n%s: x"' % mark}
            status, said = g.post("/v1/chat/completions", body)
            equal(
                (status, said["choices"][0]["message"]["content"].strip(), said["choices"][0]["finish_reason"]),
                (200, "hi", "stop"),
                mark,
            )
        for more, text in (
            ({"ignore_eos": True, "max_tokens": 15}, "hi\nUser: x"),
            ({"stop": ["i"]}, "h"),
        ):
            body = {"messages": HELLO, "max_tokens": 60, "grammar": 'root ::= "hi\\nUser: x"', **more}
            said = g.post("/v1/chat/completions", body)[1]["choices"][0]
            equal(said["message"]["content"].strip(), text, more)
        body = {"prompt": "Hello", "max_tokens": 60, "grammar": 'root ::= "hi\\nUser: x"'}
        equal(g.post("/v1/completions", body)[1]["choices"][0]["text"].strip(), "hi\nUser: x", "a text has no turns")
    c, seen = d.client(), []
    first = [{"role": m["role"], "text": m["content"]} for m in HELLO]
    for text in (b'root ::= "hi"', b'root ::= "hi" "\\nUser: x"'):
        a = c.ask(messages=first, keep=True, max_tokens=60, constraint={"kind": "grammar", "text": text})
        equal((a.text.strip(), a.finish), (b"hi", "stop"), text)
        b = c.ask(messages=first[1:], session=a.started["session"], max_tokens=5)
        seen.append((b.started["context"], b.text))
    c.close()
    equal(seen[1], seen[0], "the turn after it")


def formless(d):
    """Without a chat template each answer to messages says so once, also on `ntx generate`; one to a text does not."""
    continued = "the model has no chat template: the text is continued"
    written = "the model has no chat template: the conversation is written in the form 'plain'"
    plain = make_model(
        os.path.join(tmp.name, "plain.gguf"),
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
    )
    few, one = {"max_tokens": 2}, HELLO[1:]
    c = d.client()
    c.load(plain, ctx=128, threads=1)
    c.close()
    invented(d)
    with Gateway(d) as g:
        for path, body, note in (
            ("/v1/chat/completions", dict(few, messages=one), continued),
            ("/v1/chat/completions", dict(few, messages=HELLO), written),
            ("/v1/chat/completions", dict(few, messages=one, n=2), continued),
            ("/v1/messages", dict(few, messages=one), continued),
            ("/api/chat", {"messages": one, "options": {"num_predict": 2}, "stream": False}, continued),
            ("/v1/completions", dict(few, prompt="Hello"), ""),
        ):
            status, head, text = g.request("POST", path, body)
            equal((status, head.get("warning", "")), (200, note and '299 ntx "%s"' % note), path)
            equal(json.loads(text).get("ntx", {}), {"note": note} if note else {}, path)
            equal(text.count(b"no chat template"), 1 if note else 0, path)
            if "n" not in body and path != "/api/chat":
                status, head, text = g.request("POST", path, dict(body, stream=True))
                equal(
                    (status, head.get("warning", ""), text.count(b"no chat template")),
                    (200, note and '299 ntx "%s"' % note, 0),
                    path + ", a stream",
                )
        status, head, text = g.request("POST", "/v1/chat/completions", dict(few, messages=one, verbosity="low"))
        equal(json.loads(text)["ntx"], {"ignored": ["verbosity"], "note": continued}, "both")
    for argv, note in (
        (("Hello",), continued),
        (("Hello", "--system", "Be brief."), written),
        (("Hello", "--raw"), ""),
        (("Hello", "--quiet"), ""),
        (("Hello", "--chat-template", "chatml"), ""),
    ):
        p = subprocess.run(
            [os.path.join(BIN, "ntx"), "generate", *argv, "-n", "2", "--socket", os.path.join(d.dir, "ntx.sock")],
            capture_output=True,
            text=True,
            timeout=60 * patience(),
        )
        equal(
            (p.returncode, p.stderr.count("no chat template"), p.stderr.count(note + " (--raw") if note else 0),
            (0, 1 if note else 0, 1 if note else 0),
            "%s: %s" % (argv, p.stderr),
        )


def main():
    with Daemons() as d:
        with Gateway(d) as g:
            equal(
                g.get("/health"),
                (
                    503,
                    {
                        "status": "empty",
                        "error": {
                            "code": 503,
                            "message": "no model is loaded: load one first (ntx load MODEL)",
                            "type": "unavailable_error",
                        },
                    },
                ),
                "health without a model",
            )
            equal(g.get("/v1/models"), (200, {"object": "list", "data": []}), "models without a model")
            code, e = g.post("/v1/completions", {"prompt": "a"})
            check(code == 503 and "no model is loaded" in e["error"]["message"], code, e)
            c = d.client()
            c.load(model, **PLAN)
            c.close()
            for part in (chat, choices, text, leaving, crowd, lookers):
                part(d, g)
            for part in (refusals, views):
                part(g)
            formless(d)
            d.terminate("computed")
            d.child["computed"].wait()
            without(g)


main()
