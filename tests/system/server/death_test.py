#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Workers die during answers: at seeded random moments, both at once, and during the restart. Tokens stay the same.

Also: reads that fail, a predictor that does not come back, workers that never come.
"""

import json
import os
import random
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import Daemons, check, equal, make_model, patience, refused, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-model-")
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
    "--layers",
    "6",
    "--embd",
    "512",
    "--ff",
    "1536",
    "--heads",
    "8",
    "--kv",
    "2",
    "--type",
    "Q8_0",
    "--seed",
    "3",
)
LOAD = {"ram_bytes": 16 << 20, "ctx": 128, "sessions": 3}
PROMPTS = ["Once upon a time there was", "The dog " * 10, "A"]
ROUNDS = int(os.environ.get("NTX_KILL_ROUNDS", "8"))
rng = random.Random(int(os.environ.get("NTX_SEED", "20261121")))


def pause(seconds):
    threading.Event().wait(seconds)


def three(c):
    ids = [c.generate(p, max_tokens=16, ignore_eos=True) for p in PROMPTS]
    return [c.answer(i).tokens for i in ids]


def kills(d, c, want):
    done = 0
    for i in range(ROUNDS):
        ids = [c.generate(p, max_tokens=16, ignore_eos=True) for p in PROMPTS]
        victims = [("iod",), ("iod", "predictor"), ("predictor",)][i % 3]
        pause(rng.random() * 0.8)
        for name in victims:
            before = d.starts[name]
            d.kill(name)
            done += 1
            if i % 4 == 3:  # once more, while it restarts
                wait_for(lambda: d.starts[name] > before, 5, "a restart of " + name)
                pause(rng.random() * 0.03)
                d.kill(name)
                done += 1
        equal([c.answer(k).tokens for k in ids], want, "round %d, %s killed" % (i, victims))
    return done


def at_load(d, c, want):
    """A worker dies while the model is loaded, at several moments."""
    for i in range(4):
        fd = os.open(model, os.O_RDONLY)
        load = c.send("load", dict(LOAD, names=["m"], link_nvme_bps=60e6), [fd])
        os.close(fd)
        request = c.generate(PROMPTS[0], max_tokens=16, ignore_eos=True)
        pause(0.02 + 0.04 * i)
        d.kill("iod" if i % 2 else "predictor")
        c.until(load, "loaded")
        equal(c.answer(request).tokens, want[0], "a load during which a worker died")


def read_errors(d, c, want):
    """A read that fails for good ends the answers that needed it, with the reason.

    The next answer works where the file can be read.
    """
    for fault in ("iod:eio@chunk=9,count=2", "iod:short@p=0.02"):
        c.load(model, **LOAD, fault=fault)
        equal(three(c), want, fault)
    text = refused(
        lambda: (
            c.load(model, **LOAD, fault="iod:eio@chunk=30,count=100000"),
            c.ask("Once", max_tokens=4, ignore_eos=True),
        ),
        "EIO|Input/output|I/O",
        "an unreadable chunk",
    )
    check("m.gguf" in text or "offset" in text, "neither file nor offset in:", text)
    wait_for(lambda: json.loads(c.status())["state"] in ("ready", "empty"), 10, "rest")
    c.load(model, **LOAD)
    equal(three(c), want, "after read errors")


def skipping(d, c):
    """A policy that skips: deaths do not change tokens; a predictor that stays away is reported, without waiting."""
    skip = dict(LOAD, skip="script:3,5")
    c.load(model, **skip)
    want = three(c)
    a = c.ask(PROMPTS[0], max_tokens=16, ignore_eos=True)
    stats = json.loads(a.stats)
    equal((stats["lossy"], stats["predictor_lost"]), (["skip:script:3,5"], False), "statistics")
    check(1.7 < stats["skipped_layers_per_token"] <= 2, stats["skipped_layers_per_token"], "layers skipped per token")
    for i in range(4):
        ids = [c.generate(p, max_tokens=16, ignore_eos=True) for p in PROMPTS]
        pause(rng.random() * 0.5)
        d.kill("predictor" if i % 2 else "iod")
        equal([c.answer(k).tokens for k in ids], want, "skipping, round %d" % i)
    d.restart = False
    request = c.generate(PROMPTS[0], max_tokens=16, ignore_eos=True)
    c.until(request, "token")
    d.kill("predictor")
    began = time.monotonic()
    a = c.answer(request)
    equal((len(a.tokens), json.loads(a.stats)["predictor_lost"]), (15, True), "without a predictor")
    check(4 < time.monotonic() - began < 60 * patience(), "waited", time.monotonic() - began, "s for a predictor")
    d.restart = True
    wait_for(lambda: json.loads(c.status())["predictor"], 5, "a new predictor")
    equal(three(c), want, "with a new predictor")


def connect(d):
    try:
        return d.client()
    except OSError:
        return None


with Daemons() as d:
    c = d.client(120)
    c.load(model, **LOAD)
    want = three(c)
    c.load(model, **LOAD, link_nvme_bps=150e6)
    equal(three(c), want, "on a slow drive")
    n = kills(d, c, want)
    at_load(d, c, want)
    read_errors(d, c, want)
    skipping(d, c)
    check(json.loads(c.status())["iod_starts"] > n // 2, c.status())
with Daemons() as d:  # computed itself dies: its workers let go, and the next one begins anew
    c = d.client()
    c.load(model, **LOAD)
    request = c.generate("Once", max_tokens=0, ignore_eos=True)
    c.until(request, "token")
    d.restart = False
    d.kill("computed")
    for name in ("iod", "predictor"):
        wait_for(lambda: d.child[name].poll() is not None, 5, "the end of " + name)
    check(os.path.exists(d.socket()), "a killed daemon leaves its socket")
    d.spawn("computed")
    d.restart = True
    c = wait_for(lambda: connect(d), 10, "the next daemon")
    c.load(model, **LOAD)
    equal(three(c), want, "the next daemon's text")
print("same tokens after", n, "kills")
