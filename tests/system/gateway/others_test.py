#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ntx-gateway with Anthropic's Messages API and with Ollama's.

Exact shapes, the text that ntx-computed itself gives, refusals; and thoughts, separate from the answer.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, check, equal, events, make_model, patience, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-gateway-")
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
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
    "--ctx",
    "2048",
)
HELLO = [{"role": "user", "content": "Hello"}]
MESSAGES = [{"role": "system", "text": "Be brief."}, {"role": "user", "text": "Hello"}]


def straight(d, most, **options):
    c = d.client()
    a = c.ask(temp=0, max_tokens=most, **options)
    c.close()
    return a


def mask(text):
    text = re.sub(r',"timings":\{[^}]*\}', "", text)
    return re.sub(r'"(id|created_at)":"[^"]*"', r'"\1":""', re.sub(r'("\w+_duration"):\d+', r"\1:0", text))


def dumps(text):
    return re.sub(r"\\u[0-9a-f]{4}", lambda m: "\\u" + m[0][2:].upper(), json.dumps(text, ensure_ascii=False))


def anthropic(d, g):
    a = straight(d, 6, messages=MESSAGES)
    want, n, written = a.text.decode(), a.started["prompt_tokens"], len(a.tokens)
    reason = {"length": "max_tokens", "stop": "end_turn"}[a.finish]
    ask = {"model": "any", "max_tokens": 6, "temperature": 0, "system": "Be brief.", "messages": HELLO}
    message = (
        '{"id":"","type":"message","role":"assistant","model":"random","content":[%s],"stop_reason":%s,'
        '"stop_sequence":null,"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,'
        '"cache_read_input_tokens":%d,"output_tokens":%d}}'
    )
    status, head, body = g.request("POST", "/v1/messages", ask)
    equal(
        (status, mask(body.decode())),
        (200, message % ('{"type":"text","text":%s}' % dumps(want), '"%s"' % reason, 1, n - 1, written)),
        "a message",
    )  # it was asked before
    check(re.match(r'\{"id":"msg_[0-9a-f]{24}"', body.decode()), "its id:", body[:60])
    parts = dict(
        ask,
        system=[{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}],
        messages=[{"role": "user", "content": [{"type": "text", "text": "Hello"}]}],
    )
    equal(g.post("/v1/messages", parts)[1]["content"], [{"type": "text", "text": want}], "parts")
    status, head, body = g.request("POST", "/v1/messages", dict(ask, stream=True))
    equal(head["content-type"], "text/event-stream", "a stream's type")
    said = events(body)
    check(all(json.loads(data)["type"] == name for name, data in said), "events that name themselves otherwise", said)
    said = [mask(data) for name, data in said if name != "ping"]
    equal(said[0], '{"type":"message_start","message":%s}' % (message % ("", "null", n, 0, 0)), "message_start")
    equal(
        said[1],
        '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
        "content_block_start",
    )
    deltas = [json.loads(s)["delta"]["text"] for s in said[2:-3]]
    equal(
        said[2:-3],
        ['{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":%s}}' % dumps(t) for t in deltas],
        "deltas",
    )
    equal("".join(deltas), want, "their text")
    equal(
        said[-3:],
        [
            '{"type":"content_block_stop","index":0}',
            (
                '{"type":"message_delta","delta":{"stop_reason":"%s","stop_sequence":null},"usage":{"input_tokens":1,'
                '"cache_creation_input_tokens":0,"cache_read_input_tokens":%d,"output_tokens":%d}}'
            )
            % (reason, n - 1, written),
            '{"type":"message_stop"}',
        ],
        "the end",
    )
    stop = next(want[i : i + 3] for i in range(1, len(want) - 2) if "\ufffd" not in want[i : i + 3])
    r = g.post("/v1/messages", dict(ask, stop_sequences=["never", stop]))[1]
    equal((r["stop_reason"], r["stop_sequence"]), ("stop_sequence", stop), "a stop sequence")
    said = [
        json.loads(data)
        for name, data in events(g.request("POST", "/v1/messages", dict(ask, stop_sequences=[stop], stream=True))[2])
    ]
    equal(said[-2]["delta"], {"stop_reason": "stop_sequence", "stop_sequence": stop}, "of a stream")
    equal(
        g.request("POST", "/v1/messages/count_tokens", {"model": "any", "system": "Be brief.", "messages": HELLO})[2],
        b'{"input_tokens":%d}' % n,
        "count_tokens",
    )
    for bad, kind, words in (
        (dict(ask, max_tokens=None), "invalid_request_error", "max_tokens: is required"),
        (
            dict(
                ask,
                tools=[{"type": "bash_20250124", "name": "bash"}],
                tool_choice={"type": "tool", "name": "bash"},
            ),
            "invalid_request_error",
            "'bash', which ntx cannot offer",
        ),
        (dict(ask, thinking={"type": "off"}), "invalid_request_error", "enabled, adaptive or disabled"),
        (dict(ask, n=2), "invalid_request_error", "'n' is not supported"),
        (dict(ask, messages=[{"role": "critic", "content": "x"}]), "invalid_request_error", "assistant or system"),
        (dict(ask, messages=[{"role": "user", "content": "a " * 3000}]), "invalid_request_error", "tokens"),
    ):
        status, e = g.post("/v1/messages", bad)
        equal(
            (status, list(e), e["type"], list(e["error"]), e["error"]["type"]),
            (400, ["type", "error"], "error", ["type", "message"], kind),
            e,
        )
        check(words in e["error"]["message"], e, "lacks", words)


def ollama(d, g):
    a = straight(d, 6, messages=MESSAGES)
    want, n = a.text.decode(), a.started["prompt_tokens"]
    options = {"temperature": 0, "num_predict": 6, "num_ctx": 4096}
    ask = {"model": "any", "messages": [{"role": "system", "content": "Be brief."}] + HELLO, "options": options}
    end = (
        '"done":true,"done_reason":"%s","total_duration":0,"load_duration":0,"prompt_eval_count":%d,'
        '"prompt_eval_duration":0,"eval_count":%d,"eval_duration":0}'
    ) % (a.finish, n, len(a.tokens))
    status, head, body = g.request("POST", "/api/chat", dict(ask, stream=False))
    equal(
        (status, mask(body.decode())),
        (200, '{"model":"random","created_at":"","message":{"role":"assistant","content":%s},%s' % (dumps(want), end)),
        "chat",
    )
    status, head, body = g.request("POST", "/api/chat", ask)
    equal(head["content-type"], "application/x-ndjson", "a stream's type")
    lines = body.decode().splitlines()
    pieces = [json.loads(line)["message"]["content"] for line in lines[:-1]]
    equal(
        [mask(x) for x in lines[:-1]],
        [
            '{"model":"random","created_at":"","message":{"role":"assistant","content":%s},"done":false}' % dumps(p)
            for p in pieces
        ],
        "lines",
    )
    equal("".join(pieces), want, "their text")
    equal(
        mask(lines[-1]),
        '{"model":"random","created_at":"","message":{"role":"assistant","content":""},%s' % end,
        "the last line",
    )
    check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", json.loads(lines[0])["created_at"]), lines[0])
    status, r = g.post("/api/generate", {"prompt": "Hello", "system": "Be brief.", "stream": False, "options": options})
    equal((list(r)[:4], r["response"]), (["model", "created_at", "response", "done"], want), "generate")
    raw = straight(d, 6, prompt="Hello").text.decode()
    equal(
        g.post("/api/generate", {"prompt": "Hello", "raw": True, "stream": False, "options": options})[1]["response"],
        raw,
        "generate, raw",
    )
    for path, bad, words in (
        ("/api/chat", dict(ask, tools=[{}]), "with a name"),
        ("/api/generate", {"prompt": 7}, "must be a string"),
        ("/api/generate", {"prompt": "a", "context": [1]}, "'context' is not"),
        ("/api/chat", dict(ask, options={"num_predict": -3}), "'num_predict'"),
        ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aa"]}]}, "a picture cannot be used"),
    ):
        status, e = g.post(path, bad)
        check(status == 400 and list(e) == ["error"] and words in e["error"], path, bad, status, e)
    status, tags = g.get("/api/tags")
    one = tags["models"][0]
    equal(
        (status, one["name"], one["model"], one["details"]["family"], one["details"]["format"]),
        (200, "random", "random", "llama", "gguf"),
        "tags",
    )
    check(one["size"] > 10000, "its size", one)
    show = g.post("/api/show", {"model": "any"})[1]
    equal(
        (show["model_info"], show["capabilities"]),
        ({"general.architecture": "llama", "llama.context_length": 512}, ["completion"]),
        "show",
    )
    status, ps = g.get("/api/ps")
    run = ps["models"][0]
    c = d.client()
    s = json.loads(c.status())
    c.close()
    equal(
        (status, list(run), run["name"], run["model"], run["details"], run["context_length"], run["size_vram"]),
        (
            200,
            ["name", "model", "size", "digest", "details", "expires_at", "size_vram", "context_length"],
            "random",
            "random",
            one["details"],
            512,
            0,
        ),
        "ps",
    )
    equal(run["size"], s["bytes_host"] + s["bytes_kv"], "what of it is in memory")
    check(s["bytes_host"] > 10000 and s["bytes_kv"] > 10000, s)
    check(
        re.fullmatch(r"[0-9a-f]{32,64}", run["digest"]) and run["digest"] == one["digest"],
        "what Ollama's client shows as an ID",
        run,
    )
    check(re.fullmatch(r"2[1-9]\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", run["expires_at"]), "it stays", run)
    status, e = g.post("/api/pull", {"model": "x"})
    check(status == 403 and list(e) == ["error"] and "--manage" in e["error"], status, e)
    check(g.get("/api/version")[1]["version"], "version")


def ending(d):
    """The service ends: answers under way get their time, new requests are refused; then the rest are told."""
    conf = os.path.join(tmp.name, "ntx.conf")
    for grace, words in ((60, None), (0, "the gateway is shutting down")):
        with open(conf, "w") as f:
            f.write("[clients]\nstop_grace = %d\n" % grace)
        with Gateway(d, "--config", conf) as g, d.held("iod") if words else contextlib.nullcontext():

            def connect():
                s = http.client.HTTPConnection("127.0.0.1", g.port, timeout=60 * patience())
                s.connect()
                return s

            stream, idle = connect(), connect()
            stream.request(
                "POST",
                "/v1/completions",
                json.dumps({"prompt": "Hello", "max_tokens": 40, "ignore_eos": True, "temperature": 0, "stream": True}),
            )
            r = stream.getresponse()
            first = b"" if words else r.readline()
            g.p.send_signal(signal.SIGTERM)
            wait_for(lambda: refused(g.port), 10, "nobody comes in any more")
            if not words:
                idle.request("GET", "/v1/models")
                late = idle.getresponse()
                equal(
                    (late.status, json.loads(late.read())["error"]["message"], late.getheader("Connection")),
                    (503, "the gateway is shutting down", "close"),
                    "who is there already",
                )
            said = events(first + r.read())
            if words:
                equal(json.loads(said[-1])["error"]["message"], words, "the end of an answer that has no time")
            else:
                equal(
                    (said[-1], json.loads(said[-2])["choices"][0]["finish_reason"]),
                    ("[DONE]", "length"),
                    "the end of an answer that has time",
                )
            equal(g.p.wait(20 * patience()), 0, "the gateway's exit code")
            idle.close()
            stream.close()


def refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except (ConnectionRefusedError, ConnectionResetError):
        return True


def main():
    with Daemons() as d, Gateway(d) as g:
        c = d.client()
        c.load(model, ctx=512, threads=1)
        c.close()
        anthropic(d, g)
        ollama(d, g)
        c = d.client()
        larger = make_model(
            os.path.join(tmp.name, "larger.gguf"),
            "--layers",
            "4",
            "--embd",
            "256",
            "--ff",
            "768",
            "--heads",
            "8",
            "--kv",
            "2",
            "--type",
            "Q8_0",
            "--seed",
            "2",
        )
        c.load(larger, ctx=256, sessions=2, threads=1, ram_bytes=4 << 20, link_nvme_bps=20e6)
        check(json.loads(c.status())["bytes_storage"], "nothing of it is read for a token")
        c.close()
        ending(d)


main()
