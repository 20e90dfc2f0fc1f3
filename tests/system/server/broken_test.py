#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Broken workers of a service.

An ntx-iod that overwrites all that it may write and dies: the next one reads on, and the tokens are the same. One that
ends again and again, or does not come back: waiting clients get an error at once that says how it ended, and so does a
request for the status. When one works again, so does the service.
"""

import json
import mmap
import os
import random
import socket
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import Daemons, check, equal, make_model, refused, wait_for  # noqa: E402

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
MESSAGE = struct.Struct("@IIIIiIQIIIIIiIIQ64s256s")  # struct ntx_attach_msg
MAGIC, VERSION, IOD = 0x4E545841, 5, 1
HELLO, WELCOME, ATTACH, ATTACHED = 1, 2, 5, 6
RING = 2  # of the descriptors of ATTACH


def say(s, kind, build=b"", epoch=0, ring=-1):
    s.send(MESSAGE.pack(MAGIC, VERSION, kind, IOD, os.getpid(), 0, epoch, 0, 0, 0, 0, 0, ring, 0, 0, 0, build, b""))


def play(directory, build, kind, seed, ring_fd):
    """Plays an ntx-iod of this build that an attacker has taken over."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.connect(os.path.join(directory, "region.sock"))
        say(s, HELLO, build.encode())
        while True:
            packet, fds, _, _ = socket.recv_fds(s, MESSAGE.size, 110)
            m = MESSAGE.unpack(packet)
            if m[2] == ATTACH:
                break
        say(s, ATTACHED, epoch=m[6], ring=ring_fd)
        with mmap.mmap(fds[RING], 0) as ring:
            n = len(ring)
            ring[:] = random.Random(seed).randbytes(n) if kind == "random" else bytes([kind]) * n
        time.sleep(0.05)


def scribbler(d, build, kind, seed, ring_fd=-1):
    pid = os.fork()
    if not pid:
        try:
            play(d.dir, build, kind, seed, ring_fd)
        finally:
            os._exit(0)
    os.waitpid(pid, 0)


def ask(c):
    return c.ask("Once upon a time there was", max_tokens=12, ignore_eos=True).tokens


def status(c):
    return json.loads(c.status())


def scribbles(d, c):
    c.load(model, **LOAD)
    want, build = ask(c), status(c)["build"]
    for i, kind in enumerate((0xFF, 0xF1, 0x80, "random", "random")):
        d.restart = False
        d.kill("iod")
        wait_for(lambda: not status(c)["iod"], 5, "the death of ntx-iod")
        scribbler(d, build, kind, i)
        wait_for(lambda: not status(c)["iod"], 5, "the death of what played ntx-iod")
        d.spawn("iod")
        d.restart = True
        began = time.monotonic()
        equal(ask(c), want, "after nonsense (%s)" % kind)
        check(time.monotonic() - began < 30, "an answer took", time.monotonic() - began, "s after nonsense")
    return want


def cannot_be_proved(d, c, want):
    """An ntx-iod claims a ring that does not exist, so its reads could arrive at any time and any place.

    That is reported at once, without waiting.
    """
    build = status(c)["build"]
    d.restart = False
    d.kill("iod")
    wait_for(lambda: not status(c)["iod"], 5, "the death of ntx-iod")
    scribbler(d, build, "random", 7, 900)
    wait_for(lambda: not status(c)["iod"], 5, "the death of what played ntx-iod")
    d.spawn("iod")
    d.restart = True
    began = time.monotonic()
    for _ in range(2):
        refused(lambda: ask(c), "load the model again", "a region that is spoilt")
    check(time.monotonic() - began < 8, "not told at once:", time.monotonic() - began, "s")
    c.load(model, **LOAD)
    equal(ask(c), want, "loaded again")


def stays_away(d, c, want):
    d.restart = False
    d.kill("iod")
    with open(os.path.join(d.dir, "ntx-iod.end"), "w") as f:
        f.write("killed by signal 11, Segmentation fault\n")
    began = time.monotonic()
    text = refused(
        lambda: ask(c),
        "ntx-iod ended \\(the last time: killed by signal 11, Segmentation fault\\) and did not come back within 10 s",
        "no ntx-iod",
    )
    check(time.monotonic() - began < 40, "told after", time.monotonic() - began, "s")
    check(status(c)["iod_lost"] in text, status(c), "does not say:", text)
    began = time.monotonic()
    refused(lambda: ask(c), "did not come back", "no ntx-iod, once more")
    check(time.monotonic() - began < 8, "not told at once:", time.monotonic() - began, "s")
    d.spawn("iod")
    d.restart = True
    wait_for(lambda: status(c)["iod"] and "iod_lost" not in status(c), 10, "ntx-iod")
    equal(ask(c), want, "when it had come back")


def keeps_dying(d, c, want):
    """Each process reads what comes before a certain chunk, and dies at that chunk."""
    fd = os.open(model, os.O_RDONLY)
    load = c.send("load", dict(LOAD, names=["m"], fault="iod:kill@chunk=30"), [fd])
    os.close(fd)
    text = refused(
        lambda: (c.until(load, "loaded"), ask(c)),
        "ntx-iod ended 10 times in a row before it had read anything",
        "a fatal chunk",
    )
    check("build" not in text, "another build is blamed:", text)
    wait_for(lambda: status(c)["state"] in ("ready", "empty"), 20, "rest")
    c.load(model, **LOAD)
    check("iod_lost" not in status(c), status(c))
    equal(ask(c), want, "with a well one")


def predictor_dies(d, c, want):
    c.load(model, **LOAD, skip="script:3,5", fault="predictor:kill@probe=1")
    a = c.ask("Once upon a time there was", max_tokens=12, ignore_eos=True)
    equal((a.tokens, json.loads(a.stats)["predictor_lost"]), (want, True), "without a predictor")
    wait_for(lambda: "predictor_lost" in status(c) or status(c)["predictor"], 10, "word of it")
    c.load(model, **LOAD)
    equal(ask(c), want, "with a well one")


with Daemons() as d:
    c = d.client(120)
    want = scribbles(d, c)
    cannot_be_proved(d, c, want)
    stays_away(d, c, want)
    keeps_dying(d, c, want)
    predictor_dies(d, c, want)
print("broken workers cost nobody else anything")
