#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kept prefixes, compared with llama.cpp's server and its prompt cache. CSV.

    beside.py LLAMA_SERVER MODEL.gguf SCENARIO [--cap BYTES] [--only ntx|llama.cpp]

The same requests over HTTP (/v1/completions, texts as token ids), one server after the other. Scenarios:

    agent    20 turns over a preamble of 4000 tokens: each brings all that was said before, 20 tokens of an answer and
             40 of a tool's result (both recorded), and gets 4 tokens; then the server ends, starts again and gets one
             more turn. llama.cpp's slot is saved before that and restored after it, by its own requests
    eight    eight clients at once, with one preamble of 4000 tokens and 60 tokens of their own
    edits    a conversation of 2000 tokens that is edited in its middle, four times, each time elsewhere, and continued
             from its end between two edits; then the server ends and starts again (as above), and the conversation is
             edited in its middle once more

--cap: both in a cgroup of so many bytes, ntx with a --ram of 64 MiB less; caches dropped before each. NTX_BIN:
build/bin. RAM: bytes of ntx's --ram without a cap (1 GiB).
"""

import argparse
import concurrent.futures
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

BIN = os.environ.get("NTX_BIN") or sys.exit("set NTX_BIN to build/bin")
CGROUP = "/sys/fs/cgroup/memory/ntx-bench-prefix"
CTX, THREADS = 8192, 2


def ids(n, seed):
    return [3 + (seed * 7919 + i * i * 31 + i) % 250 for i in range(n)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, who, args, tmp, slots=1):
        self.who, self.args, self.tmp, self.slots = who, args, tmp, slots

    def command(self):
        if self.who == "ntx":
            ram = args.cap - (64 << 20) if args.cap else int(os.environ.get("RAM", 1 << 30))
            return [
                os.path.join(BIN, "ntx"),
                "serve",
                args.model,
                "--listen",
                "127.0.0.1:%d" % self.port,
                "--ctx",
                str(CTX),
                "--sessions",
                str(self.slots),
                "--threads",
                str(THREADS),
                "--ram",
                str(ram),
                "--state",
                os.path.join(self.tmp, "state"),
            ]
        return [
            args.llama,
            "-m",
            args.model,
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "-c",
            str(CTX * self.slots),
            "-np",
            str(self.slots),
            "-t",
            str(THREADS),
            "-tb",
            str(THREADS),
            "--slot-save-path",
            self.tmp,
            "--no-warmup",
            "--no-webui",
        ]

    def __enter__(self):
        self.port = free_port()
        if args.cap:
            subprocess.run(
                "sync; echo 3 >/proc/sys/vm/drop_caches; mkdir -p %s; echo %d >%s/memory.limit_in_bytes"
                % (CGROUP, args.cap, CGROUP),
                shell=True,
                check=True,
            )
        self.log = open(os.path.join(self.tmp, self.who + ".log"), "ab")
        enter = (lambda: open(CGROUP + "/tasks", "w").write(str(os.getpid()))) if args.cap else None
        env = dict(os.environ, NTX_RUNTIME=os.path.join(self.tmp, "run"))
        self.child = subprocess.Popen(
            self.command(), stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, preexec_fn=enter, env=env
        )
        for _ in range(3000):
            if self.child.poll() is not None:
                sys.exit("%s ended: %s" % (self.who, open(self.log.name).read()[-2000:]))
            try:
                c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
                c.request("GET", "/v1/models" if self.who == "ntx" else "/health")
                if c.getresponse().status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.02)
        sys.exit("%s does not answer" % self.who)

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait(60)
        if args.cap:
            os.rmdir(CGROUP)

    def post(self, path, body):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=900)
        c.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        r = c.getresponse()
        if r.status != 200:
            sys.exit("%s: %s: %s" % (self.who, r.status, r.read()[:400]))
        return r

    def ask(self, tokens, n=4):
        """Time to the first token, s, and how many tokens of the prompt were not computed."""
        t0 = time.monotonic()
        r = self.post(
            "/v1/completions",
            {
                "prompt": tokens,
                "max_tokens": n,
                "temperature": 0,
                "stream": True,
                "stream_options": {"include_usage": True},
                "ignore_eos": True,
                **({} if self.who == "ntx" else {"cache_prompt": True}),
            },
        )
        first, cached = None, -1
        for line in r:
            if not line.startswith(b"data: {"):
                continue
            first = first or time.monotonic() - t0
            j = json.loads(line[6:])
            details = (j.get("usage") or {}).get("prompt_tokens_details") or {}
            cached = details.get("cached_tokens", cached)
        return first, cached


def show(who, what, turn, n, answer):
    print("%s,%s,%s,%d,%d,%.3f" % (who, what, turn, n, answer[1], answer[0]), flush=True)


def ends(who, s):
    if who != "ntx":
        s.post("/slots/0?action=save", {"filename": "slot"}).read()
    else:
        time.sleep(2)  # it writes when nobody waits


def again(who, s, text):
    """The first request after a restart: what restoring takes is in its time."""
    t0 = time.monotonic()
    if who != "ntx":
        s.post("/slots/0?action=restore", {"filename": "slot"}).read()
    restored = time.monotonic() - t0
    first, cached = s.ask(text)
    return first + restored, cached


def agent(who, tmp):
    text = ids(4000, 1)
    with Server(who, args, tmp) as s:
        for turn in range(1, 21):
            text = text + ids(60, 10 + turn)
            show(who, "agent", turn, len(text), s.ask(text))
        ends(who, s)
    with Server(who, args, tmp) as s:
        text = text + ids(60, 99)
        show(who, "agent", "restart", len(text), again(who, s, text))


def eight(who, tmp):
    with Server(who, args, tmp, 8) as s, concurrent.futures.ThreadPoolExecutor(8) as pool:
        t0 = time.monotonic()
        found = list(pool.map(lambda i: s.ask(ids(4000, 1) + ids(60, 200 + i)), range(8)))
        for i, x in enumerate(sorted(found)):
            show(who, "eight", i + 1, 4060, x)
        print("%s,eight,all,,,%.3f" % (who, time.monotonic() - t0), flush=True)


def edits(who, tmp):
    text = ids(2000, 1)
    with Server(who, args, tmp) as s:
        show(who, "edits", "first", len(text), s.ask(text))
        for k in range(4):
            at = 600 + 300 * k
            text = text[:at] + ids(60, 300 + k) + text[at + 60 :]
            show(who, "edits", "edit at %d" % at, len(text), s.ask(text))
            text = text + ids(40, 400 + k)
            show(who, "edits", "on", len(text), s.ask(text))
        ends(who, s)
    with Server(who, args, tmp) as s:
        text = text[:1400] + ids(60, 500) + text[1460:]
        show(who, "edits", "restart, edit at 1400", len(text), again(who, s, text))


p = argparse.ArgumentParser()
p.add_argument("llama")
p.add_argument("model")
p.add_argument("scenario", choices=["agent", "eight", "edits"])
p.add_argument("--cap", type=int)
p.add_argument("--only")
args = p.parse_args()
print("who,scenario,turn,prompt_tokens,cached_tokens,ttft_s")
for who in ("ntx", "llama.cpp"):
    if args.only in (None, who):
        with tempfile.TemporaryDirectory(prefix="ntx-beside-", dir=os.environ.get("TMPDIR", "/var/tmp")) as tmp:
            {"agent": agent, "eight": eight, "edits": edits}[args.scenario](who, tmp)
