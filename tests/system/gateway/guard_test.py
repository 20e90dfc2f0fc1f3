#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ntx-gateway's guard: hosts and origins, keys, idle connections, and malformed or hostile requests."""

import http.client
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
    Daemons,
    FIXED,
    GATEWAY,
    Gateway,
    HELLO,
    MODEL,
    PLAN,
    check,
    equal,
    free_port,
    make_model,
    patience,
    wait_for,
)  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-gateway-")
model = make_model(os.path.join(tmp.name, "m.gguf"), *MODEL)


def status_of(reply):
    m = re.match(rb"HTTP/1.1 (\d+) ", reply)
    return int(m[1]) if m else 0


def origins(d, g):
    def host(h, more=b""):
        return status_of(
            g.raw(b"GET /v1/models HTTP/1.1\r\nHost: " + h + b"\r\n" + more + b"Connection: close\r\n\r\n")
        )

    for name in (b"localhost", b"localhost:%d" % g.port, b"127.0.0.1:1", b"[::1]:80", b"127.9.9.9"):
        equal(host(name), 200, name)
    for name in (
        b"evil.example",
        b"127.0.0.1.evil.example",
        b"localhost.evil.example",
        b"10.0.0.1",
        b"[::2]",
        b"127.0.0.1:80:80",
        b"",
    ):
        equal(host(name), 403, name)
    equal(
        status_of(g.raw(b"GET / HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")),
        403,
        "the page, by another's name",
    )
    with Gateway(d, "--hosts", "ntx.example, proxy") as h:
        for name, want in (
            ("NTX.example:8080", 200),
            ("proxy", 200),
            ("localhost", 200),
            ("ntx.example.evil", 403),
            ("evil.example", 403),
        ):
            equal(h.request("GET", "/v1/models", headers={"Host": name})[0], want, "--hosts: " + name)
    equal(host(b"localhost:5", b"Origin: http://localhost:5\r\n"), 200, "its own page")
    equal(host(b"localhost:5", b"Origin: https://evil.example\r\n"), 403, "another's page")
    equal(host(b"localhost:5", b"Origin: null\r\n"), 403, "a page of no origin")
    with Gateway(d, "--cors", "https://a.example, https://b.example") as h:
        status, head, _ = h.request(
            "OPTIONS",
            "/v1/chat/completions",
            headers={"Origin": "https://b.example", "Access-Control-Request-Headers": "authorization"},
        )
        equal(
            (status, head["access-control-allow-origin"], head["access-control-allow-headers"], head["vary"]),
            (204, "https://b.example", "authorization", "Origin"),
            "preflight",
        )
        status, head, _ = h.request("GET", "/v1/models", headers={"Origin": "https://a.example"})
        equal((status, head["access-control-allow-origin"]), (200, "https://a.example"), "an origin that may")
        equal(h.request("GET", "/v1/models", headers={"Origin": "https://c.example"})[0], 403, "one that may not")


def shut(s):
    try:
        return s.recv(1) == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def keys(d):
    path = os.path.join(tmp.name, "key")

    def write(text, mode=0o600):
        with open(path, "w") as f:
            f.write(text)
        os.chmod(path, mode)

    def refused(words, *options):
        p = subprocess.run(
            [GATEWAY, "--runtime", d.dir, *options], capture_output=True, text=True, timeout=30 * patience()
        )
        check(
            p.returncode in (100, 111) and p.stderr.count("\n") == 1 and words in p.stderr,
            options,
            p.returncode,
            p.stderr,
        )

    write("sesame-open\n", 0o644)
    refused("others may read", "--api-key-file", path)
    write("short")
    refused("8 to 512", "--api-key-file", path)
    refused("give an API key", "--listen", "0.0.0.0:%d" % free_port())
    refused("no address", "--listen", "nowhere")
    refused("no origin", "--cors", "a.example")
    refused("is no host", "--hosts", "https://a.example")
    refused("cannot be read", "--api-key-file", path + ".none")
    write("sesame-open\n")
    with Gateway(d, "--api-key-file", path, listen="0.0.0.0") as g:  # one address does not get all connections
        many = [socket.create_connection(("127.0.0.1", g.port), 20) for _ in range(80)]
        for s in many:
            s.settimeout(20)
        sent = [s for s in many[64:] if shut(s)]
        equal(len(sent), 16, "connections beyond those of one address that were closed")
        for s in many:
            s.close()

        def again():
            try:
                return g.get("/health")[0] == 200
            except (OSError, http.client.HTTPException):  # the others' ends are not all seen yet
                return False

        wait_for(again, 20, "a place again")
    with Gateway(d, "--api-key-file", path) as g:
        refused("Address already in use", "--listen", "127.0.0.1:%d" % g.port)
        for headers, want in (
            ({}, 401),
            ({"Authorization": "Bearer sesame-opem"}, 401),
            ({"Authorization": "Bearer sesame-open"}, 200),
            ({"Authorization": "Basic sesame-open"}, 401),
            ({"Authorization": "Bearer "}, 401),
            ({"x-api-key": "sesame-open"}, 200),
            ({"Authorization": "bearer sesame-open"}, 200),
        ):
            status, head, body = g.request("GET", "/v1/models", headers=headers)
            equal(status, want, headers)
            if want == 401:
                equal(
                    (head["www-authenticate"], json.loads(body)["error"]["code"]), ("Bearer", "invalid_api_key"), "401"
                )
        equal(g.get("/health")[0], 200, "health needs no key")
        equal(g.post("/v1/chat/completions", dict(FIXED, messages=HELLO))[0], 401, "without a key")
        equal(g.request("GET", "/health", headers={"Host": "a.example"})[0], 200, "any name, where there is a key")


def idle_clients(d):
    """More clients that send headers byte by byte than there are connections.

    A client with a whole request is answered all the same, and requests under way are not cut off.
    """
    with Gateway(d) as g:
        body = json.dumps(dict(FIXED, prompt="A dog", max_tokens=400, ignore_eos=True, stream=True)).encode()
        early = socket.create_connection(("127.0.0.1", g.port), 60)
        early.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            % len(body)
            + body
        )
        got = early.recv(12)
        slow = []
        for _ in range(300):
            s = socket.create_connection(("127.0.0.1", g.port), 20)
            s.sendall(b"GET /health HTTP/1.1\r\nX: ")
            slow.append(s)
        for _ in range(5):
            equal(g.get("/v1/models")[0], 200, "beside idle clients")
        while more := early.recv(65536):
            got += more
        early.close()
        check(got.startswith(b"HTTP/1.1 200") and b"[DONE]" in got, "a stream from before", got[:200], got[-200:])
        check(shut(slow[0]), "the first idle client stays")
        for s in slow:
            s.close()
        wait_for(lambda: g.get("/health")[0] == 200, 20, "health afterwards")


def framing(g):
    """Where a request ends must be unambiguous.

    Otherwise it is refused and its connection closed, so that what follows is not taken for another request.
    """
    body = json.dumps(dict(FIXED, prompt="A dog")).encode()
    hidden = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)

    def answers(headers, sent, first=b"Host: localhost\r\n", timeout=20):
        begin = time.monotonic()
        reply = g.raw(b"POST /v1/completions HTTP/1.1\r\n" + first + headers + b"\r\n" + sent + hidden, timeout)
        check(time.monotonic() - begin < timeout * patience(), headers, "the connection is left open")
        check(b"\r\nConnection: close\r\n" in reply, headers, reply)
        return [int(n) for n in re.findall(rb"HTTP/1\.1 (\d+) ", reply)]

    n = b"Content-Length: %d\r\n" % len(body)
    for headers, sent in (
        (b"Content-Length: 0\r\n" + n, body),
        (n + b"Content-Length: 0\r\n", body),
        (n + n, body),
        (b"Transfer-Encoding: chunked\r\n" + n, chunked),
        (n + b"Transfer-Encoding: chunked\r\n", chunked),
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", chunked),
        (b"Transfer-Encoding: identity\r\n" + n, body),
        (b"Transfer-Encoding : chunked\r\n" + n, body),
        (b"Content-Length : 0\r\n" + n, body),
        (n + b"Host: localhost\r\n", body),
        (b"Transfer-Encoding: xchunked\r\n", chunked),
        (b"Transfer-Encoding: chunked, gzip\r\n", chunked),
        (b"Content-Encoding: gzip\r\n" + n, body),
    ):
        equal(answers(headers, sent), [400], (headers, sent[:8]))
    for headers, sent in (
        (n, body),
        (b"transfer-encoding: Chunked\r\n", chunked),
        (b"Content-Encoding: identity\r\n" + n, body),
    ):
        reply = g.raw(
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
            + headers
            + b"\r\n"
            + sent
            + hidden.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
        )
        equal(re.findall(rb"HTTP/1\.1 (\d+) ", reply), [b"200", b"200"], "two requests in one connection")


def one_answer(reply, what):
    """The status of what must be a single reply: one header without repeated fields, a body of the stated length."""
    head, _, body = reply.partition(b"\r\n\r\n")
    names = [line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:]]
    equal(
        (len(re.findall(rb"HTTP/1\.1 \d", reply)), len(set(names))),
        (1, len(names)),
        "%s: the headers of %r" % (what, reply[:600]),
    )
    equal(int(re.search(rb"(?i)\r\ncontent-length: (\d+)", head)[1]), len(body), what + ": the length")
    return status_of(reply)


def malformed(g):
    """Each request is answered once, and its connection is closed."""
    post, host, body = b"POST /tokenize HTTP/1.1\r\n", b"Host: localhost\r\n", b'{"content":"Hi"}'
    n, end, get = b"Content-Length: %d\r\n" % len(body), b"Connection: close\r\n\r\n", b"GET /health HTTP/1.1\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    big = 24 << 20
    for what, sent, want, words in (
        ("two Hosts", post + host + host + n + end + body, 400, b"one Host"),
        ("no Host", post + n + end + body, 400, b"Host header is missing"),
        ("no Host, no body", b"GET /health HTTP/1.1\r\n" + end, 400, b"Host header is missing"),
        (
            "two Origins",
            post + host + b"Origin: http://localhost\r\nOrigin: https://evil.example\r\n" + n + end + body,
            400,
            b"one Origin",
        ),
        (
            "two keys",
            post + host + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n" + n + end + body,
            400,
            b"one Authorization",
        ),
        ("a negative length", post + host + b"Content-Length: -1\r\n" + end, 400, b"no number"),
        ("a sign", post + host + b"Content-Length: +16\r\n" + end + body, 400, b"no number"),
        ("a list of lengths", post + host + b"Content-Length: 16, 16\r\n" + end + body, 400, b"no number"),
        (
            "a length beyond all",
            post + host + b"Content-Length: 99999999999999999999\r\n" + end,
            413,
            b"no number that is taken",
        ),
        (
            "chunks in HTTP/1.0",
            b"POST /tokenize HTTP/1.0\r\n" + host + chunked + b"\r\n10\r\n" + body + b"\r\n0\r\n\r\n",
            400,
            b"HTTP/1.0 has not",
        ),
        ("CR in a value", post + host + b"X: a\rb\r\n" + n + end + body, 400, b"control character"),
        ("a control in a value", post + host + b"X: a\x01b\r\n" + n + end + body, 400, b"control character"),
        ("a folded line", post + host + b"X: a\r\n b\r\n" + n + end + body, 400, b"second line"),
        ("a folded name", post + b"Hos: localhost\r\n t\r\n" + n + end + body, 400, b"second line"),
        (
            "a length in a folded line",
            post + host + b"X: a\r\n\tContent-Length: 3\r\n" + n + end + body,
            400,
            b"second line",
        ),
        ("NUL in a Host", post + b"Host: localhost\0.evil.example\r\n" + n + end + body, 400, b"control character"),
        ("NUL in a value", post + host + b"X: a\0b\r\n" + n + end + body, 400, b"control character"),
        ("a header without a name", post + host + b": a\r\n" + n + end + body, 400, b"no name"),
        ("a header without a name or a value", get + host + b":\r\n" + end, 400, b"no name"),
        ("a header without a name, on a GET", get + host + b": a\r\n" + end, 400, b"no name"),
        ("the first header without a name", get + b": a\r\n" + host + end, 400, b"no name"),
        ("LF ends each line", (get + host + end).replace(b"\r", b""), 400, b"LF alone"),
        ("LF ends the request line", post.replace(b"\r", b"") + host + n + end + body, 400, b"LF alone"),
        ("LF ends a header", post + b"Host: localhost\n" + n + end + body, 400, b"LF alone"),
        ("LF ends the last header", post + host + n + b"Connection: close\n\r\n" + body, 400, b"LF alone"),
        ("LF is the empty line", post + host + n + b"Connection: close\r\n\n" + body, 400, b"LF alone"),
        ("LF and no header", b"GET /health HTTP/1.0\n\n", 400, b"LF alone"),
        ("blanks after a value", get + host + b"X: a \t\r\n" + end, 200, b'"ok"'),
        ("an empty value", get + host + b"X:\r\n" + end, 200, b'"ok"'),
        ("HTTP/1.0 and no header", b"GET /health HTTP/1.0\r\n\r\n", 200, b'"ok"'),
        (
            "another server's target",
            b"POST http://evil.example/tokenize HTTP/1.1\r\n" + host + n + end + body,
            400,
            b"another server",
        ),
        ("a full target", b"GET http://localhost/health HTTP/1.1\r\n" + host + end, 200, b'"ok"'),
        (
            "too long, and sent",
            post + host + b"Content-Length: %d\r\n" % (big + 1) + end + b" " * (big + 1),
            413,
            b"longer than 24 MiB",
        ),
        ("too long, in chunks", post + host + chunked + end + chunk * 450 + b"0\r\n\r\n", 413, b"longer than 24 MiB"),
        (
            "a body for nothing",
            b"POST /nowhere HTTP/1.1\r\n" + host + b"Content-Length: %d\r\n" % (4 << 20) + end + b" " * (4 << 20),
            404,
            b"/nowhere",
        ),
    ):
        reply = g.raw(sent)
        equal(one_answer(reply, what), want, what)
        check(words in reply, what, reply[:600])
        if want != 200:
            check(b"\r\nConnection: close\r\n" in reply, what, reply[:600])


def hostile(g):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    equal(status_of(g.raw(head + b"Content-Length: 25165825\r\n\r\n")), 413, "a body that says it is too long")
    check(
        status_of(g.raw(head + b"Content-Length: 99999999999999999999\r\n\r\n")) in (0, 400, 413), "a length beyond all"
    )
    check(status_of(g.raw(head + b"Content-Length: -1\r\n\r\n")) in (0, 400, 413), "a negative length")
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
    check(
        status_of(g.raw(head + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunk * 450 + b"0\r\n\r\n"))
        == 413,
        "a body that is too long without saying so",
    )
    check(
        status_of(g.raw(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 100000 + b"\r\n\r\n"))
        in (0, 400, 413, 431),
        "headers too long",
    )
    check(status_of(g.raw(b"\x00\xff" * 2000 + b"\r\n\r\n", 2)) in (0, 400, 413, 414, 431, 505), "garbage")
    status, e = g.post("/v1/completions", b'{"prompt":[' + b"1," * (4 << 20) + b"1]}")
    check(status in (400, 413) and e["error"]["message"], "millions of tokens:", status)
    for _ in range(3):
        s = socket.create_connection(("127.0.0.1", g.port))
        s.sendall(head + b"Content-Length: 1000\r\n\r\n{")
        s.close()
    equal(g.get("/health")[0], 200, "after all that")


def main():
    with Daemons() as d:
        c = d.client()
        c.load(model, **PLAN)
        c.close()
        with Gateway(d) as g:
            origins(d, g)
            for part in (framing, malformed, hostile):
                part(g)
        keys(d)
        idle_clients(d)


main()
