#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""64 HTTP clients at once on the demo model; part of tests/run --long.

Whole answers and streams, clients that leave at any moment, slow readers, workers that are killed. Every answer that
comes to its end has the text that belongs to its seed; afterwards descriptors, memory and processes are as before.
NTX_LOAD_SECONDS=N sets how long it takes.
"""

import http.client
import json
import os
import random
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, check, equal, events, wait_for  # noqa: E402

SECONDS = float(os.environ.get("NTX_LOAD_SECONDS") or (600 if os.environ.get("NTX_LONG") else 0))
CLIENTS, SEEDS = 64, 8
SANITIZED = float(os.environ.get("NTX_TEST_SLOW", "1")) > 1  # a sanitizer keeps what was freed for a while
if not SECONDS:
    print("skipped: the load is part of tests/run --long (NTX_LONG is set there)")
    sys.exit(77)


def ask(seed, stream):
    return {"prompt": "A dog", "max_tokens": 16, "ignore_eos": True, "seed": seed, "stream": stream}


def held(g):
    """(descriptors, threads, KiB of private memory) of the gateway."""
    with open("/proc/%d/status" % g.p.pid) as f:
        lines = dict(line.split(":", 1) for line in f)
    return len(os.listdir("/proc/%d/fd" % g.p.pid)), int(lines["Threads"]), int(lines["RssAnon"].split()[0])


class Load:
    def __init__(self, g, want):
        self.g, self.want, self.end = g, want, time.monotonic() + SECONDS
        self.lock, self.wrong = threading.Lock(), []
        self.count = {"whole": 0, "streamed": 0, "left": 0}

    def one(self, rng):
        seed, stream, leave, slow = rng.randrange(SEEDS), rng.random() < 0.6, rng.random() < 0.25, rng.random() < 0.1
        c = http.client.HTTPConnection("127.0.0.1", self.g.port, timeout=300)
        try:
            c.request("POST", "/v1/completions", json.dumps(ask(seed, stream)))
            if leave:
                threading.Event().wait(rng.random() * 0.3)
                return "left"
            r = c.getresponse()
            body = b""
            while True:
                got = r.read(64 if slow else 65536)
                if not got:
                    break
                body += got
                if slow:
                    threading.Event().wait(0.01)
            equal(r.status, 200, "status: " + body.decode()[:300])
            if stream:
                said = events(body)
                equal(said[-1], "[DONE]", "the end")
                text = "".join(json.loads(e)["choices"][0]["text"] for e in said[:-1])
            else:
                text = json.loads(body)["choices"][0]["text"]
            equal(text, self.want[seed], "the text of seed %d" % seed)
            return "streamed" if stream else "whole"
        finally:
            c.close()

    def client(self, n):
        rng = random.Random(n)
        while time.monotonic() < self.end and not self.wrong:
            try:
                what = self.one(rng)
            except (Exception, SystemExit) as e:
                with self.lock:
                    self.wrong.append(repr(e))
                return
            with self.lock:
                self.count[what] += 1


def main():
    with Daemons() as d, Gateway(d) as g:
        c = d.client()
        c.load(
            os.path.join(os.environ["NTX_SOURCE"], "models", "demo.gguf"),
            ram_bytes=24 << 20,
            ctx=128,
            sessions=8,
            threads=2,
            ring_slots=4,
            chunk_bytes=1 << 20,
        )
        check(json.loads(c.status())["bytes_storage"] > 1 << 20, "the demo is streamed")
        c.close()
        want = {s: g.post("/v1/completions", ask(s, False))[1]["choices"][0]["text"] for s in range(SEEDS)}
        before, load, kills = held(g), Load(g, want), 0
        threads = [threading.Thread(target=load.client, args=(n,)) for n in range(CLIENTS)]
        for t in threads:
            t.start()
        rng = random.Random(1)
        while time.monotonic() < load.end and not load.wrong:
            threading.Event().wait(rng.uniform(1, 3))
            d.kill(rng.choice(["iod", "predictor"]))
            kills += 1
        for t in threads:
            t.join()
        check(not load.wrong, load.wrong[:3])
        wait_for(
            lambda: all(n <= was for n, was in zip(held(g)[:2], before[:2])), 30, "descriptors and threads as before"
        )
        after = held(g)
        check(SANITIZED or after[2] < before[2] + (32 << 10), "memory:", before, after)
        equal(g.post("/v1/completions", ask(0, False))[1]["choices"][0]["text"], want[0], "afterwards")
        print(
            "%.0f s, %d clients: %s; %d workers killed; the gateway's own memory %d KiB before, %d after"
            % (SECONDS, CLIENTS, load.count, kills, before[2], after[2])
        )


main()
