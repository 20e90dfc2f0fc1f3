#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that send requests of the greatest size, in part.

What is buffered of them is bounded over all clients, others are served as before, and each is answered once its turn
comes. A client that never sends the rest loses its turn.
"""

import os
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import wire  # noqa: E402
from daemons import Daemons, check, equal, make_model, patience, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-model-")
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
    "--layers",
    "1",
    "--embd",
    "64",
    "--ff",
    "128",
    "--heads",
    "2",
    "--kv",
    "2",
    "--type",
    "Q8_0",
    "--seed",
    "5",
)
CLIENTS = 10
FRAME = 16 << 20
ADMISSION = FRAME + (5 << 20)  # for whoever comes first, and the shares of all
SLOW = float(os.environ.get("NTX_TEST_SLOW", "1"))
SANITIZED = SLOW > 1


def memory(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))


class Sender:
    """A request with one large string of tokens, sent as fast as the daemon reads it."""

    def __init__(self, d):
        self.c = d.client()
        self.c.sock.setblocking(False)
        body = wire.pack(wire.REQUEST, {"id": 1, "generate": {"prompt": b"a" * (FRAME - 64), "raw": True}})
        check(FRAME - 64 < len(body) <= FRAME, "length", len(body))
        self.data, self.sent = struct.pack("<I", len(body)) + body, 0

    def push(self, end):
        try:
            while self.sent < end:
                self.sent += self.c.sock.send(self.data[self.sent : min(end, self.sent + (1 << 20))])
        except BlockingIOError:
            pass
        return self.sent == len(self.data)

    def refusal(self):
        self.c.sock.setblocking(True)
        try:
            self.c.next(1)
        except wire.Refused as e:
            return str(e)
        return "no refusal"


def main():
    with Daemons() as d:
        c = d.client()
        c.load(model, ctx=64, ram_bytes=1 << 30)
        ask = lambda: c.ask("A", ignore_eos=True, max_tokens=8).tokens
        want, pid = ask(), d.child["computed"].pid
        before = memory(pid)
        senders = [Sender(d) for _ in range(CLIENTS)]
        begin, most = time.monotonic(), 0
        inside = lambda: sum(s.sent == FRAME - 4096 for s in senders)
        while time.monotonic() - begin < 2 * SLOW or (
            not inside() and time.monotonic() - begin < 60 * SLOW * patience()
        ):
            for s in senders:
                s.push(FRAME - 4096)  # all but the end
            equal(ask(), want, "tokens beside them")
            most = max(most, memory(pid))
        taken = sum(s.sent for s in senders)
        check(SANITIZED or most - before < ADMISSION + (4 << 20), "memory grew by", (most - before) >> 20, "MiB")
        check(most - before > 12 << 20, "nobody's request was taken")
        equal(inside(), 1, "requests that got in")
        print(
            "%d MiB offered, %d MiB sent, memory grew by %.1f MiB"
            % (CLIENTS * FRAME >> 20, taken >> 20, (most - before) / 2**20)
        )
        # The first client leaves in the middle; the others get their turns, and an error that no such prompt fits.
        first = next(s for s in senders if s.sent == FRAME - 4096)
        first.c.close()
        waiting = [s for s in senders if s is not first]

        def through():
            for s in list(waiting):
                if s.push(len(s.data)):
                    check("token" in s.refusal(), "a prompt beyond all measure is refused")
                    s.c.close()
                    waiting.remove(s)
            return not waiting

        wait_for(through, 120 * SLOW, "all have had their turn")
        equal(ask(), want, "tokens afterwards")
        wait_for(lambda: SANITIZED or memory(pid) - before < 6 << 20, 10, "the memory is given back")
        c.close()


main()
