#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""When requests exceed a limit together, they wait; when one request exceeds it alone, the error has the numbers.

More constrained answers at once than fit in memory, as clients and as choices of one request; streams that nobody
reads, and a client that comes after them.
"""

import json
import os
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, check, equal, events, make_model, wait_for  # noqa: E402

SLOW = float(os.environ.get("NTX_TEST_SLOW", "1"))
tmp = tempfile.TemporaryDirectory(prefix="ntx-limits-")
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
    "--chat-template",
    "chatml",
    "--layers",
    "1",
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
    "--ctx",
    "4096",
)
harmony = make_model(
    os.path.join(tmp.name, "h.gguf"),
    "--chat-template",
    "harmony",
    "--layers",
    "1",
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
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 1, "maximum": 30}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": SCHEMA}}


def ask(k, **more):
    return dict(
        {"messages": [{"role": "user", "content": "j %d" % k}], "response_format": FORMAT, "temperature": 1, "seed": k},
        **more,
    )


def person(text, what):
    v = json.loads(text)
    check(list(v) == ["name", "age"] and len(v["name"]) <= 8 and 1 <= v["age"] <= 30, what, text)


def at_once(n, work):
    got, threads = [None] * n, []
    for k in range(n):

        def run(k=k):
            try:
                got[k] = work(k)
            except Exception as e:
                got[k] = repr(e)

        threads.append(threading.Thread(target=run))
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return got


def constrained(g):
    """--ram fits three answers.

    8 clients at once all get theirs, the same as one by one; so do 16 choices of one request.
    """
    for turn in range(3):
        got = at_once(8, lambda k: g.post("/v1/chat/completions", ask(k), timeout=120 * SLOW))
        for k, answer in enumerate(got):
            check(isinstance(answer, tuple) and answer[0] == 200, "client %d of 8:" % k, answer)
            person(answer[1]["choices"][0]["message"]["content"], "client %d of 8" % k)
    for k in range(8):
        equal(
            g.post("/v1/chat/completions", ask(k))[1]["choices"][0]["message"],
            got[k][1]["choices"][0]["message"],
            "alone",
        )
    for n in (8, 16):
        status, r = g.post("/v1/chat/completions", ask(3, n=n), timeout=120 * SLOW)
        equal(status, 200, r)
        equal([c["index"] for c in r["choices"]], list(range(n)), "choices")
        for c in r["choices"]:
            person(c["message"]["content"], "one of %d" % n)


def calls(g):
    """Required tool calls, of 8 clients at once."""
    tools = [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}]
    body = {
        "messages": [{"role": "user", "content": "Hello"}],
        "tools": tools,
        "tool_choice": "required",
        "temperature": 1,
        "max_tokens": 400,
    }
    ended = 0
    for answer in at_once(8, lambda k: g.post("/v1/chat/completions", dict(body, seed=k), timeout=120 * SLOW)):
        check(isinstance(answer, tuple) and answer[0] == 200, answer)
        c = answer[1]["choices"][0]
        if c["finish_reason"] == "tool_calls":
            person(c["message"]["tool_calls"][0]["function"]["arguments"], "arguments")
            ended += 1
    check(ended, "no call came to its end")


def alone_too_much(g):
    """A schema that exceeds all memory: 400 with numbers, and no advice to try again."""
    many = {
        "type": "object",
        "properties": {"p%d" % i: {"type": "string", "pattern": "^[a-z]{1,200}[0-9]{1,200}$"} for i in range(150)},
        "additionalProperties": False,
    }
    status, headers, body = g.request(
        "POST",
        "/v1/chat/completions",
        ask(1, response_format={"type": "json_schema", "json_schema": {"name": "m", "schema": many}}),
    )
    e = json.loads(body)["error"]
    equal((status, headers.get("retry-after")), (400, None), e)
    check(e["code"] != "context_length_exceeded" and any(c.isdigit() for c in e["message"]), e)


# ---- streams that nobody reads


def stream_body(k, tokens, **more):
    return json.dumps(
        dict(
            {
                "messages": [{"role": "user", "content": "tell story %d" % k}],
                "max_tokens": tokens,
                "stream": True,
                "ignore_eos": True,
                "temperature": 0,
                "logprobs": True,
                "top_logprobs": 20,
            },
            **more,
        )
    ).encode()


def deaf(g, k, tokens):
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    s.settimeout(120 * SLOW)
    s.connect(("127.0.0.1", g.port))
    body = stream_body(k, tokens)
    s.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        % len(body)
        + body
    )
    return s


def rest_of(s):
    got = b""
    try:
        while True:
            more = s.recv(1 << 16)
            if not more:
                return got
            got += more
    except ConnectionResetError:
        return got
    finally:
        s.close()


def text_of(raw):
    """The text of all events of a stream in chunked HTTP."""
    head, body = raw.split(b"\r\n\r\n", 1)
    check(head.startswith(b"HTTP/1.1 200"), head)
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
    said = [e for e in events(whole) if e != "[DONE]"]
    return (
        "".join(c["delta"].get("content") or "" for e in said for c in json.loads(e)["choices"]),
        b"data: [DONE]" in whole,
    )


def first_token(g):
    since = time.monotonic()
    status, r = g.post(
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "ignore_eos": True},
        timeout=200 * SLOW,
    )
    equal(status, 200, r)
    return time.monotonic() - since


def status_of(d):
    c = d.client()
    try:
        return json.loads(c.status())
    finally:
        c.close()


def stalled(d, g):
    """16 streams that nobody reads occupy all seats and all sessions.

    A client that comes then gets its first token long before they are cut off. When they are read at last, all of their
    text is there, the same as for a client that reads at once.
    """
    tokens = 1500
    plain = g.request("POST", "/v1/chat/completions", stream_body(0, tokens), timeout=120 * SLOW)[2]
    want = "".join(
        c["delta"].get("content") or "" for e in events(plain) if e != "[DONE]" for c in json.loads(e)["choices"]
    )
    streams = [deaf(g, k, tokens) for k in range(16)]
    threading.Event().wait(1)
    took = first_token(g)
    again = first_token(g)
    print("behind 16 streams that nobody reads: %.2f s to the first token, then %.2f s" % (took, again))
    check(min(took, again) < 5 * SLOW and took < 20 * SLOW, "it waited", took, again)
    got = at_once(16, lambda k: text_of(rest_of(streams[k])))
    for k, answer in enumerate(got):
        check(isinstance(answer, tuple) and answer[1], "stream %d has no end:" % k, answer)
    equal(got[0][0], want, "the text of one that waited")


def cut_off(d):
    """With --stall 2, a client that reads nothing for two seconds does not get the end of its stream."""
    with Gateway(d, "--stall", "2") as g:
        since = time.monotonic()
        s = deaf(g, 1, 3000)
        wait_for(lambda: status_of(d)["sessions"] >= 0 and time.monotonic() - since > 6, 10, "its time")
        raw = rest_of(s)
        check(
            b"HTTP/1.1 200" in raw and b"[DONE]" not in raw and not raw.endswith(b"0\r\n\r\n"),
            "it was not cut off",
            raw[-80:],
        )


def main():
    with Daemons() as d, Gateway(d) as g:
        c = d.client()
        c.load(model, ctx=512, threads=1, ram_bytes=160 << 20, sessions=8)
        c.close()
        constrained(g)
        alone_too_much(g)
        c = d.client()
        c.load(harmony, ctx=512, threads=1, ram_bytes=160 << 20, sessions=8)
        c.close()
        calls(g)
        c = d.client()
        c.load(model, ctx=4096, threads=1, ram_bytes=300 << 20, sessions=4)
        c.close()
        stalled(d, g)
        cut_off(d)


main()
