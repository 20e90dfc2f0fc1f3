#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A swarm: 64 clients with prompts from ten tokens to nearly the whole context, half of whom leave, on two models in
turn, with less memory than they have weights.

No error but 429 and 503, no gap of 10 s between two tokens, no more memory than the budget, and texts as before. 4 s;
tests/run --long: 10 minutes on the demo models. NTX_SWARM_SECONDS=N: another time, on those, too. Prompts have a tenth
of the 30,000 tokens of large models: contexts are 4096 tokens there. bench/gateway/swarm.py has those.
"""

import http.client
import json
import os
import random
import socket
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Daemons, Gateway, check, equal, make_model, patience, wait_for  # noqa: E402

SECONDS = float(os.environ.get("NTX_SWARM_SECONDS") or (600 if os.environ.get("NTX_LONG") else 0))
CLIENTS, BUSY, GAP_S = 64, (429, 503), 10
SANITIZED = float(os.environ.get("NTX_TEST_SLOW", "1")) > 1  # a sanitizer's own memory is in no budget
LONG = 2  # clients whose prompts all fill the context, where the others' do not
SHAPE = ["--layers", "4", "--embd", "128", "--ff", "512", "--heads", "4", "--kv", "2", "--ctx", "1024"]
MODELS = os.path.join(os.environ["NTX_SOURCE"], "models")


def setting(tmp):
    """(models by name, ram in MiB, context, seconds)"""
    if SECONDS:
        names = {"dense": os.path.join(MODELS, "demo.gguf"), "experts": os.path.join(MODELS, "demo-moe.gguf")}
        return names, 72, 4096, SECONDS
    names = {n: make_model(os.path.join(tmp, n + ".gguf"), *SHAPE, "--seed", n[-1]) for n in ("one1", "two2")}
    return names, 28, 1024, 4


LONGER = "override_kv = llama.context_length=int:%d\n"


def pss(pids):
    total = 0
    for pid in pids:
        with open("/proc/%d/smaps_rollup" % pid) as f:
            total += next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
    return total << 10


class Halts:
    """How long this process was halted with all others (SIGSTOP, a suspended machine): no gap of the service."""

    def __init__(self):
        self.total, self.last, self.lock, self.over = 0, time.monotonic(), threading.Lock(), threading.Event()
        threading.Thread(target=self.watch, daemon=True).start()

    def watch(self):
        while not self.over.wait(0.1):
            self.so_far()

    def so_far(self):
        """The seconds, with a halt that ends just now, whichever thread goes on first."""
        with self.lock:
            now = time.monotonic()
            self.total += max(0, now - self.last - 3)
            self.last = now
            return self.total


class Swarm:
    def __init__(self, g, models, ctx, seconds, patient, usual=None):
        self.g, self.models, self.ctx, self.end = g, sorted(models), ctx, time.monotonic() + seconds
        self.usual, self.longest = usual or ctx, 0
        self.lock, self.wrong, self.gap, self.first = threading.Lock(), [], 0, 0
        self.count = dict.fromkeys(("whole", "left", "busy", "swaps"), 0)
        self.last_model, self.open, self.patient, self.halts = None, set(), patient, Halts()

    def over(self):
        """The time is over, and something of each kind has come to its end, or does not in a minute more."""
        late = time.monotonic() - self.end - self.halts.total
        return late > 60 * patience() or (late > 0 and min(self.count[k] for k in ("whole", "left", "swaps")) > 0)

    def request(self, rng, long):
        """long: a prompt that fills the context, for the first model."""
        n = int(0.92 * self.ctx) if long else int(10 * (0.92 * self.usual / 10) ** rng.random())
        tokens = [3 + rng.randrange(200) for _ in range(n)]
        model = self.models[not long and rng.random() < 0.2]
        return {"model": model, "prompt": tokens, "n_predict": rng.randrange(1, 60), "ignore_eos": True, "stream": True}

    def read(self, r, leaves, rng):
        """Reads the stream; the longest gap between two tokens."""
        last, halted, gap, until = None, 0, 0, rng.randrange(20) if leaves else None
        for line in r:
            if not line.startswith(b"data: "):
                continue
            j, now = json.loads(line[6:]), time.monotonic()
            if "error" in j:
                check(j["error"].get("code") in BUSY, "an error in a stream:", j)
                return "busy", gap
            halts = self.halts.so_far()
            gap = max(gap, now - last - (halts - halted)) if last else gap
            last, halted = now, halts
            if j.get("stop"):
                return "whole", gap
            if until is not None:
                if not until:
                    return "left", gap
                until -= 1
        check(self.over(), "a stream without an end")
        return "left", gap

    def one(self, rng, long):
        leaves, ask = not long and rng.random() < 0.5, self.request(rng, long)
        c, sock = http.client.HTTPConnection("127.0.0.1", self.g.port, timeout=self.patient * patience()), None
        try:
            begun = time.monotonic()
            c.connect()
            sock = c.sock
            self.open.add(sock)
            c.request("POST", "/completion", json.dumps(ask), {"Content-Type": "application/json"})
            if leaves and rng.random() < 0.5:
                threading.Event().wait(rng.random())
                return "left"
            r = c.getresponse()
            if r.status in BUSY:
                return "busy"
            equal(r.status, 200, "status: " + ("" if r.status == 200 else r.read().decode()[:300]))
            first = time.monotonic() - begun
            how, gap = self.read(r, leaves, rng)
            with self.lock:
                self.gap, self.first = max(self.gap, gap), max(self.first, first)
                if how == "whole":
                    self.longest = max(self.longest, len(ask["prompt"]))
                self.count["swaps"] += self.last_model not in (None, ask["model"])
                self.last_model = ask["model"]
            return how
        except (OSError, ValueError, http.client.HTTPException):
            if not self.over():
                raise
            return "left"
        finally:
            self.open.discard(sock)
            c.close()

    def leave(self):
        """Ends the requests that are under way when the time is over."""
        for s in list(self.open):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def client(self, n):
        rng, long = random.Random(n), n < LONG and self.usual < self.ctx
        while not self.over() and not self.wrong:
            try:
                how = self.one(rng, long)
            except (Exception, SystemExit) as e:
                with self.lock:
                    self.wrong.append("client %d: %r" % (n, e))
                return
            with self.lock:
                self.count[how] += 1
            if how == "busy":
                threading.Event().wait(0.1 + rng.random())


def answer(g, model):
    ask = {"model": model, "prompt": [5, 9, 13, 17], "n_predict": 12, "ignore_eos": True, "temperature": 0}
    status, j = g.post("/completion", ask, timeout=120)
    equal(status, 200, j)
    return j["content"]


def run(models, ram, ctx, seconds, more, patient=120, usual=None):
    """models by name; ram in MiB; more: lines of the configuration; patient: seconds that a client waits for its turn;
    usual: the context that prompts reach, but for those of LONG clients; None: all of it. The longest gap and other
    figures, as text."""
    with tempfile.TemporaryDirectory(prefix="ntx-swarm-") as tmp:
        conf = os.path.join(tmp, "ntx.conf")
        with open(conf, "w") as f:
            f.write("[model]\nram = %dM\nctx = %d\nsessions = 2\nthreads = 2\n%s" % (ram, ctx, more))
            f.write("models = " + ",".join("%s=%s" % m for m in models.items()) + "\n")
        with Daemons("--config", conf) as d, Gateway(d) as g:
            want = {m: answer(g, m) for m in models}
            swarm = Swarm(g, models, ctx, seconds, patient, usual)
            threads = [threading.Thread(target=swarm.client, args=(n,)) for n in range(CLIENTS)]
            for t in threads:
                t.start()
            most = 0
            while any(t.is_alive() for t in threads):
                most = max(most, pss([p.pid for p in d.child.values()]))
                threading.Event().wait(min(1, seconds / 8))
                if swarm.over():
                    swarm.leave()
            swarm.halts.over.set()
            check(not swarm.wrong, swarm.wrong[:3])
            check(swarm.gap < GAP_S * patience(), "a gap of %.1f s between two tokens" % swarm.gap)
            budget = (ram << 20) + (64 << 20) + (ram << 20) // 64
            check(most <= budget or SANITIZED, "memory: %.1f MiB of %.1f" % (most / (1 << 20), budget / (1 << 20)))
            check(swarm.count["whole"] > 0 and swarm.count["left"] > 0 and swarm.count["swaps"] > 0, swarm.count)
            wait_for(lambda: g.get("/health")[0] == 200, 30, "the service in order")
            for m in models:
                equal(answer(g, m), want[m], "the text of " + m + " afterwards")
            held = "%.1f of %.1f MiB" % (most / (1 << 20), budget / (1 << 20))
            return (
                "%.0f s, %d clients: %s; longest prompt answered %d tokens, longest gap %.2f s, "
                % (seconds, CLIENTS, swarm.count, swarm.longest, swarm.gap)
                + "first event after %.1f s at most, %s; halted for %.0f s" % (swarm.first, held, swarm.halts.total)
            )


def main():
    with tempfile.TemporaryDirectory(prefix="ntx-swarm-") as tmp:
        models, ram, ctx, seconds = setting(tmp)
        print(run(models, ram, ctx, seconds, LONGER % ctx))


if __name__ == "__main__":
    main()
