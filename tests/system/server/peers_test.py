#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Hostile or broken processes at every socket of the runtime directory, while a client goes on with its requests.

Requests that are garbage, cut off, changed in some bytes, or sent byte by byte; clients that die at any point; garbage
and silence at the workers' socket and on their links. No other client notices, and afterwards nothing is kept.
"""

import json
import os
import random
import socket
import stat
import struct
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import wire  # noqa: E402
from daemons import Daemons, check, descriptors, equal, make_model, patience, wait_for  # noqa: E402

SEED = int(os.environ.get("NTX_SEED", "20261127"))
SLOW = float(os.environ.get("NTX_TEST_SLOW", "1"))
tmp = tempfile.TemporaryDirectory(prefix="ntx-server-peers-")
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
LOAD = {"ram_bytes": 9 << 20, "ctx": 256, "sessions": 4, "threads": 1}
NEWCOMERS = 16
SP_PAIR = b"\0SP\0\0\x10\0\0"  # how nanomsg's sockets of this kind greet
rng = random.Random(SEED)
FRAMES = [
    wire.frame(q)
    for q in (
        {"id": 5, "generate": wire.generation("Once upon a time", ignore_eos=True, max_tokens=20)},
        {"id": 1, "status": {}},
        {"id": 9, "score": {"tokens": list(range(3, 40))}},
        {"id": 4, "close_session": {"session": 1}},
        {"id": 4, "cancel": {"target": 5}},
        {
            "id": 3,
            "generate": dict(
                wire.generation("x", max_tokens=3),
                constraint={"kind": "json-schema", "text": b'{"type":"object"}'},
                bias=[{"token": 5, "add": 3.0}],
            ),
        },
    )
]


def connect(path, kind=socket.SOCK_STREAM):
    s = socket.socket(socket.AF_UNIX, kind)
    s.connect(path)  # waits where too many do
    s.settimeout(10 * patience())
    return s


def rude(path, data, kind=socket.SOCK_STREAM, stays=False):
    """Sends as much as the daemon reads, then leaves, or returns the socket."""
    s = connect(path, kind)
    try:
        s.sendall(data)
    except (BrokenPipeError, ConnectionResetError):
        pass
    if stays:
        return s
    s.close()


class Asker:
    """A client that repeats its request without end; each answer must be the right one."""

    def __init__(self, d, want):
        self.c, self.want, self.answers, self.end, self.failed = d.client(120), want, 0, threading.Event(), None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            while not self.end.is_set():
                equal(
                    self.c.ask("Once upon a time", ignore_eos=True, max_tokens=8).text, self.want, "an answer meanwhile"
                )
                self.answers += 1
        except (Exception, SystemExit) as e:
            self.failed = repr(e)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, kind, *a):
        before = self.answers
        if not kind:
            wait_for(lambda: self.failed or self.answers > before, 20, "one more answer")
        self.end.set()
        self.thread.join()
        self.c.close()
        check(kind or not self.failed, "the client that goes on asking:", self.failed)


def held(d):
    return {name: descriptors(p.pid) for name, p in d.child.items()}


def memory(d):
    with open("/proc/%d/status" % d.child["computed"].pid) as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))


def garbage(d):
    for _ in range(200):
        rude(d.socket(), rng.randbytes(rng.choice([1, 3, 4, 5, 8, 100, 5000, 70000])))
    for f in FRAMES:
        for at in range(0, len(f), max(1, len(f) // 12)):
            rude(d.socket(), f[:at])
    for _ in range(600):
        f = bytearray(rng.choice(FRAMES))
        for _ in range(rng.choice([1, 1, 2, 5])):
            f[rng.randrange(7, len(f))] = rng.randrange(
                256
            )  # behind what says which request it is: a stop would be obeyed
        if rng.random() < 0.1:
            struct.pack_into("<I", f, 0, rng.choice([0, 1, 1 << 24, (1 << 24) + 1, 0xFFFFFFFF, len(f) - 5]))
        rude(d.socket(), f)


def deaths(d):
    """200 clients that die at any point of a request or of its answer."""
    alive = []
    for _ in range(200):
        f = rng.choice(FRAMES[:3])
        alive.append(rude(d.socket(), f if rng.random() < 0.7 else f[: rng.randrange(len(f))], stays=True))
        if len(alive) > 20 or rng.random() < 0.3:
            rng.shuffle(alive)
            while len(alive) > 3:
                alive.pop().close()
    for s in alive:
        s.close()


def drip(d):
    """The daemon does not wait for the rest of a request that comes byte by byte."""
    f, begin = FRAMES[0], time.monotonic()
    s = connect(d.socket())
    try:
        for i in range(len(f) - 1):
            s.sendall(f[i : i + 1])
            time.sleep(0.5)
            check(
                time.monotonic() - begin < 25 * patience(),
                "who sends a byte at a time is still there after",
                time.monotonic() - begin,
            )
    except (BrokenPipeError, ConnectionResetError):
        pass
    check(time.monotonic() - begin > 2, "it was closed after", time.monotonic() - begin)
    s.close()
    check("and not the rest" in d.text(), "the log")


def newcomers(d):
    """At the workers' socket: garbage, descriptors, and processes that connect and stay silent.

    A worker that dies is replaced all the same.
    """
    path, null, before = os.path.join(d.dir, "region.sock"), os.open("/dev/null", os.O_RDONLY), held(d)["computed"]
    for _ in range(100):
        rude(path, rng.randbytes(rng.choice([1, 8, 16, 100, 1000, 4000, 60000])), socket.SOCK_SEQPACKET)
        s = connect(path, socket.SOCK_SEQPACKET)
        try:
            socket.send_fds(s, [b"x"], [null] * rng.choice([1, 30]))
        except (BrokenPipeError, ConnectionResetError):
            pass
        s.close()
    silent = [connect(path, socket.SOCK_SEQPACKET) for _ in range(100)]
    most = before + 2 * NEWCOMERS + 4  # each has a descriptor of its process, too; the client that asks may just come
    wait_for(lambda: held(d)["computed"] <= most, 10, "of those who say nothing the first make room")
    starts = d.starts["iod"]
    d.kill("iod")
    wait_for(
        lambda: d.starts["iod"] > starts and d.text().count("ntx-iod: attached") > starts,
        20,
        "another ntx-iod is let in",
    )
    for s in silent:
        s.close()
    os.close(null)


def links(d):
    """The daemons' sockets between them belong to their user alone; what another user sends there is dropped."""
    equal(stat.S_IMODE(os.stat(d.dir).st_mode), 0o700, "the directory's mode")
    for name in os.listdir(d.dir):
        path = os.path.join(d.dir, name)
        mode = os.stat(path).st_mode
        if not stat.S_ISSOCK(mode):
            continue
        check(not mode & 0o077, "others may connect to", name, oct(mode))
        for _ in range(0 if name in ("ntx.sock", "region.sock") else 40):
            message = rng.randbytes(rng.choice([0, 3, 50, 5000]))
            rude(
                path,
                rng.choice(
                    [
                        rng.randbytes(100),
                        SP_PAIR[: rng.randrange(8)],
                        SP_PAIR
                        + b"\1"
                        + struct.pack(">Q", rng.choice([5, 1 << 16, 1 << 40, (1 << 64) - 1]))
                        + b"x" * 50,
                        SP_PAIR + rng.randbytes(200),
                        (SP_PAIR + b"\1" + struct.pack(">Q", len(message)) + message) * 3,
                    ]
                ),
            )


def main():
    print("seed", SEED)
    conf = os.path.join(tmp.name, "ntx.conf")
    with open(conf, "w") as f:
        f.write("[clients]\nstall = 3\n")
    with Daemons("--config", conf) as d:
        c = d.client()
        c.load(model, **LOAD)
        want = c.ask("Once upon a time", ignore_eos=True, max_tokens=8).text
        with Asker(d, want):
            garbage(d)  # once, for what is only made when it is first needed

        def settled():
            return json.loads(c.status())["clients"] == 1

        def nothing_kept():
            s = json.loads(c.status())
            return (s["sessions"], s["queued"], s["kv_blocks_used"]) == (0, 0, 0)

        wait_for(settled, 10, "all have left")
        before, grown = held(d), memory(d)
        for part in (garbage, deaths, drip, links, newcomers, garbage):
            starts = dict(d.starts)
            with Asker(d, want):
                part(d)
            check(part is newcomers or d.starts == starts, part.__name__, "ended a worker")
            wait_for(settled, 10, "all have left")
            # the engine frees the text of who left at its next step
            wait_for(nothing_kept, 10, "nothing is held after " + part.__name__)
            wait_for(lambda: held(d)["computed"] <= before["computed"], 10, "descriptors as before")
        check(SLOW > 1 or memory(d) - grown < 4 << 20, "memory grew by", (memory(d) - grown) >> 10, "KiB")
        now = held(d)
        check(
            now["iod"] <= before["iod"] + 1 and now["predictor"] <= before["predictor"] + 1,
            "descriptors of the workers",
            before,
            now,
        )
        equal(c.ask("Once upon a time", ignore_eos=True, max_tokens=8).text, want, "the text afterwards")
        c.close()


main()
