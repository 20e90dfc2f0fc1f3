#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""beside.py LLAMA_SERVER MODEL [CLIENTS] [SECONDS]: ntx-gateway and llama-server on the same work.

CLIENTS at once stream answers of 64 tokens from one model, all in memory, for SECONDS each, in turn (A B B A). CSV
lines: tokens per second of all, the time to the first token, the time between two tokens, and the CPU time of the
server's processes per token, all in ms. Both have 2 threads, 16 answers at a time, greedy sampling, and share no
prefixes except the template's beginning. Needs NTX_BIN (build/bin); run nothing else on the machine.
"""

import http.client
import json
import os
import subprocess
import sys
import threading
import time

os.environ.setdefault("NTX_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, free_port  # noqa: E402

MOST, AT_ONCE = 64, 16
WORDS = "dog cat king tree boat star wind fire song road hill snow bird fish moon rain".split()


def cpu(pids):
    total = 0
    for p in pids:
        with open("/proc/%d/stat" % p) as f:
            total += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


class Work:
    def __init__(self, port, seconds):
        self.port, self.end, self.lock = port, time.monotonic() + seconds, threading.Lock()
        self.first, self.gaps, self.tokens, self.texts = [], [], 0, {}

    def one(self, n):
        prompt = "One day a %s and a %s went to see the %s." % (
            WORDS[n % 16],
            WORDS[n // 16 % 16],
            WORDS[(n * 7 + 3) % 16],
        )
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        begun, last, text, count = time.monotonic(), None, "", 0
        c.request(
            "POST",
            "/v1/completions",
            json.dumps({"prompt": prompt, "max_tokens": MOST, "temperature": 0, "ignore_eos": True, "stream": True}),
            {"Content-Type": "application/json"},
        )
        for line in c.getresponse():
            if line.startswith(b"data: {"):
                choices = json.loads(line[6:])["choices"]
                if choices and choices[0]["text"]:
                    now = time.monotonic()
                    (self.first if last is None else self.gaps).append((now - (last or begun)) * 1000)
                    last, text, count = now, text + choices[0]["text"], count + 1
        c.close()
        with self.lock:
            self.tokens += count
            self.texts[prompt] = text

    def client(self, n):
        while time.monotonic() < self.end:
            self.one(n)
            n += 64

    def run(self, clients):
        threads = [threading.Thread(target=self.client, args=(n,)) for n in range(clients)]
        begun = time.monotonic()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return time.monotonic() - begun


def measure(name, port, pids, clients, seconds):
    Work(port, 1).run(4)
    before, w = cpu(pids), Work(port, seconds)
    took = w.run(clients)
    used = cpu(pids) - before
    w.first.sort()
    w.gaps.sort()

    def at(list_, p):
        return list_[int(len(list_) * p)]

    print(
        "%s,%d,%.0f,%.1f,%.1f,%.2f,%.2f,%.2f"
        % (
            name,
            clients,
            w.tokens / took,
            at(w.first, 0.5),
            at(w.first, 0.99),
            at(w.gaps, 0.5),
            at(w.gaps, 0.99),
            used / w.tokens * 1000,
        ),
        flush=True,
    )
    return w.texts


def ntx(model, clients, seconds):
    with Daemons() as d, Gateway(d) as g:
        c = d.client()
        c.load(model, ctx=256, sessions=AT_ONCE, threads=2)
        c.close()
        return measure("ntx", g.port, [p.pid for p in d.child.values()] + [g.p.pid], clients, seconds)


def llama(server, model, clients, seconds):
    port = free_port()
    p = subprocess.Popen(
        [
            server,
            "-m",
            model,
            "-c",
            str(256 * AT_ONCE),
            "-np",
            str(AT_ONCE),
            "-t",
            "2",
            "--port",
            str(port),
            "--no-webui",
            "--cache-ram",
            "0",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(600):
            try:
                c = http.client.HTTPConnection("127.0.0.1", port)
                c.request("GET", "/health")
                if c.getresponse().status == 200:
                    break
            except OSError:
                pass
            time.sleep(0.1)
        return measure("llama-server", port, [p.pid], clients, seconds)
    finally:
        p.kill()
        p.wait()


def main():
    server, model = sys.argv[1:3]
    clients, seconds = (int(a) for a in sys.argv[3:] + ["64", "20"][len(sys.argv) - 3 :])
    print("server,clients,tokens_s,first_p50_ms,first_p99_ms,between_p50_ms,between_p99_ms,cpu_ms_a_token")
    a = ntx(model, clients, seconds)
    b = llama(server, model, clients, seconds)
    llama(server, model, clients, seconds)
    ntx(model, clients, seconds)
    both = a.keys() & b.keys()
    print("# of %d prompts that both had, %d have the same text" % (len(both), sum(a[k] == b[k] for k in both)))


main()
