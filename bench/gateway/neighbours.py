#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""neighbours.py MODEL [PROMPT] [CLIENTS] [TARGET...]: answers beside a long prompt, for targets of --max-gap.

CLIENTS (3) write answers, and a prompt of PROMPT (3000) tokens is read beside them; in turn for each TARGET in seconds
(3600 0.35 0.35 3600). CSV lines: gaps between two tokens in ms at the median and at 99 % before the prompt, and the
same, the longest gap, and the time and the CPU time to the first token of the prompt, beside it. NTX_RAM (4G) is the
budget, NTX_LINK an emulated drive's rate. Needs NTX_BIN (build/bin); run nothing else on the machine.
"""

import http.client
import json
import os
import sys
import threading
import time

os.environ.setdefault("NTX_SOURCE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway  # noqa: E402

RAM = os.environ.get("NTX_RAM", "4G")
RATE = os.environ.get("NTX_LINK", "")


def size(text):
    return int(float(text[:-1]) * {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}[text[-1]])


def stream(port, prompt, most, on_token):
    """The time to the first token; on_token(now) for each, until it returns False."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    begun, first = time.monotonic(), None
    body = {"prompt": prompt, "n_predict": most, "temperature": 0, "ignore_eos": True, "stream": True}
    c.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
    for line in c.getresponse():
        if line.startswith(b"data: {"):
            now = time.monotonic()
            first = first or now - begun
            if not on_token(now):
                break
    c.close()
    return first


class Writer(threading.Thread):
    """Writes an answer until `over`; keeps the time of each token."""

    def __init__(self, port, n):
        super().__init__(daemon=True)
        self.port, self.n, self.at, self.over = port, n, [], False
        self.start()

    def token(self, now):
        self.at.append(now)
        return not self.over

    def run(self):
        stream(self.port, [100 + 7 * self.n + i for i in range(8)], 4000, self.token)


def gaps(writers, begin, end):
    return sorted(
        1000 * (b - a) for w in writers for a, b in zip(w.at, w.at[1:], strict=False) if b >= begin and a <= end
    )


def at(values, q):
    return values[min(int(len(values) * q), len(values) - 1)] if values else float("nan")


def cpu(pid):
    with open("/proc/%d/stat" % pid) as f:
        return sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13])) / os.sysconf("SC_CLK_TCK")


def measure(model, prompt, clients, target):
    with Daemons() as d, Gateway(d) as g:
        c = d.client()
        link = {"link_nvme_bps": float(RATE[:-1]) * 1e9} if RATE else {}
        c.load(model, ctx=prompt + 4096, sessions=clients + 1, ram_bytes=size(RAM), max_gap=target, **link)
        c.close()
        alone = stream(g.port, [1000 + i % 5000 for i in range(512)], 1, lambda now: True)
        writers = [Writer(g.port, n) for n in range(clients)]
        while any(len(w.at) < 20 for w in writers):
            time.sleep(0.05)
        t0, used = time.monotonic(), cpu(d.child["computed"].pid)
        before = gaps(writers, 0, t0)
        first = stream(g.port, [2000 + i * 17 % 7000 for i in range(prompt)], 1, lambda now: True)
        t1, used = time.monotonic(), cpu(d.child["computed"].pid) - used
        beside = gaps(writers, t0, t1)
        for w in writers:
            w.over = True
        for w in writers:
            w.join()
        figures = (at(before, 0.5), at(before, 0.99), at(beside, 0.5), at(beside, 0.99), beside[-1] if beside else 0)
        print("%g,%s,%.2f,%.2f,%.2f" % (target, ",".join("%.0f" % f for f in figures), alone, first, used), flush=True)


def main():
    model, prompt, clients = sys.argv[1], int((sys.argv[2:] or [3000])[0]), int((sys.argv[3:] or [3])[0])
    print("target_s,before_p50_ms,before_p99_ms,beside_p50_ms,beside_p99_ms,beside_max_ms,512_alone_s,prompt_s,cpu_s")
    for target in sys.argv[4:] or ["3600", "0.35", "0.35", "3600"]:
        measure(model, prompt, clients, float(target))


main()
