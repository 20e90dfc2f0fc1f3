#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that do anything at any time, from a seed.

The daemon lives, keeps nothing for clients that left, and writes the same text afterwards. Every answer that comes to
its end is the right one.
"""

import json
import os
import random
import select
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import wire  # noqa: E402
from daemons import Daemons, check, equal, make_model, wait_for  # noqa: E402

SECONDS = float(os.environ.get("NTX_CHAOS_SECONDS", "8"))
SEED = int(os.environ.get("NTX_SEED", "20261121"))
tmp = tempfile.TemporaryDirectory(prefix="ntx-server-model-")
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
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
LOAD = {"ram_bytes": 8 << 20, "ctx": 96, "sessions": 3}
PROMPTS = ["Once", "The little dog " * 3, "A big tree stood", "Hm"]
rng = random.Random(SEED)


class Wild:
    """A random client: it sends without waiting and reads at random times."""

    def __init__(self, d):
        self.c = d.client()
        self.asked = {}  # request -> (prompt, text so far)
        self.sessions = []

    def act(self, d):
        c = self.c
        what = rng.random()
        if what < 0.40:
            i = rng.randrange(len(PROMPTS))
            self.asked[
                c.generate(PROMPTS[i], max_tokens=rng.choice([1, 6, 12]), ignore_eos=True, keep=rng.random() < 0.3)
            ] = [i, []]
        elif what < 0.50:
            c.generate(
                tokens=[rng.randrange(-2, 700) for _ in range(rng.randrange(0, 90))],
                max_tokens=rng.randrange(9),
                stop=["a", "be", ""][: rng.randrange(4)],
                temp=rng.random(),
                seed=rng.getrandbits(64),
                session=rng.choice([0] + self.sessions),
                keep=rng.random() < 0.5,
            )
        elif what < 0.56:
            c.send("logits", {"tokens": [rng.randrange(500) for _ in range(rng.randrange(60))]})
        elif what < 0.62:
            c.send(
                "score",
                {"tokens": [rng.randrange(500) for _ in range(rng.randrange(2, 60))], "from": rng.randrange(1, 3)},
            )
        elif what < 0.74:
            c.send("cancel", {"target": max(0, c.last_id - rng.randrange(4))})
        elif what < 0.80:
            c.send("close_session", {"session": rng.choice(self.sessions + [12345])})
        elif what < 0.84:
            c.send("unload")
        elif what < 0.90:
            with open(model, "rb") as f:
                c.send("load", dict(LOAD, names=["m"], max_rows=rng.choice([0, 1, 5])), [f.fileno()])
        elif what < 0.92:
            c.sock.sendall(rng.randbytes(rng.randrange(1, 40)))
        elif what < 0.94:
            c.send(
                "generate",
                {
                    "messages": [{"role": rng.choice(["user", "system", "x"]), "text": b"hi"}],
                    "max_tokens": 3,
                    "chat_template": rng.choice(["", "plain", "chatml", "harmony"]),
                },
            )
        elif what < 0.96:
            d.kill(rng.choice(["iod", "predictor"]))
        else:
            c.send("status")

    def read(self, want):
        while select.select([self.c.sock], [], [], 0)[0]:
            r = self.c.reply()
            a = self.asked.get(r.get("id", 0))
            if "started" in r:
                self.sessions = (self.sessions + [r["started"]["session"]])[-4:]
            elif (
                a and r.get("token", {}).get("token", 0) >= 0 and "token" in r
            ):  # -1: text that was held back, at a cancel
                a[1].append(r["token"].get("token", 0))
                i = a[0]
                equal(a[1], want[i][: len(a[1])], "tokens after '%s'" % PROMPTS[i])


with Daemons() as d:
    c = d.client()
    c.load(model, **LOAD)
    want = [c.ask(p, max_tokens=12, ignore_eos=True).tokens for p in PROMPTS]
    wild, ended, end = [], 0, time.monotonic() + SECONDS
    while time.monotonic() < end:
        if len(wild) < 8 and rng.random() < 0.3:
            wild.append(Wild(d))
        if wild:
            w = rng.choice(wild)
            try:
                w.act(d)
                if rng.random() < 0.8:
                    w.read(want)
            except (wire.Gone, BrokenPipeError, ConnectionResetError):
                wild.remove(w)
                w.c.close()
                ended += 1
        if wild and rng.random() < 0.03:
            w = wild.pop(rng.randrange(len(wild)))
            w.c.close()
            ended += 1
        select.select([], [], [], rng.random() * 0.004)
        check(d.child["computed"].poll() is None, "ntx-computed died with", d.child["computed"].poll(), "seed", SEED)
    for w in wild:
        w.c.close()
    quiet = lambda: (
        lambda s: (
            s["state"] in ("ready", "empty")
            and not s["kv_blocks_used"]
            and not s["sessions"]
            and not s["queued"]
            and s["clients"] == 1
        )
    )(json.loads(c.status()))
    wait_for(quiet, 30, "quiet: " + c.status())
    wait_for(lambda: json.loads(c.status())["iod"] and json.loads(c.status())["predictor"], 10, "both workers")
    c.load(model, **LOAD)
    equal([c.ask(p, max_tokens=12, ignore_eos=True).tokens for p in PROMPTS], want, "afterwards")
print("alive after %d clients that came to their end, seed %d" % (ended, SEED))
