#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Clients that read nothing of their answers.

What waits for them is bounded over all of them, others are served as before, and when they read at last, all is there.
"""

import os
import socket
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
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
    "--vocab-size",
    "32000",
    "--type",
    "Q8_0",
    "--seed",
    "5",
)
CLIENTS, TOKENS = 12, 60
ROW = 4 * 32000
OUTLET = 16 << 20
SANITIZED = float(os.environ.get("NTX_TEST_SLOW", "1")) > 1


def memory(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith("RssAnon"))


def main():
    with Daemons() as d:
        c = d.client()
        c.load(model, ctx=64, sessions=CLIENTS + 2, ram_bytes=1 << 30)
        right = c.logits(list(range(3, 3 + TOKENS)))
        before = memory(d.child["computed"].pid)
        slow = []
        for _ in range(CLIENTS):
            k = d.client()
            k.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.append((k, k.send("logits", {"tokens": list(range(3, 3 + TOKENS))})))
        check(CLIENTS * TOKENS * ROW > 4 * OUTLET, "the clients ask for too little")
        # Others are served meanwhile, also with logits; during their passes the slow clients' buffers fill.
        begin, most = time.monotonic(), 0
        while time.monotonic() - begin < 2 or (most - before <= 2 << 20 and time.monotonic() - begin < 60 * patience()):
            equal(len(c.ask("A", ignore_eos=True, max_tokens=8).tokens), 8, "tokens of who reads")
            most = max(most, memory(d.child["computed"].pid))
        equal(c.logits([3, 4, 5]), right[:3], "logits of who reads")
        # The limit, a reply per client beyond it, and the allocator's slack.
        # A sanitizer keeps freed memory for a while (256 MiB of it), so the limit is not checked there.
        check(
            SANITIZED or most - before < OUTLET + CLIENTS * ROW + (6 << 20),
            "memory grew by",
            (most - before) >> 20,
            "MiB",
        )
        check(most - before > 2 << 20, "the slow ones' writers did not fill")
        print("memory grew by %.1f MiB" % ((most - before) / 2**20))
        # One leaves, the others read to the end.
        slow.pop()[0].close()
        for k, request in slow:
            rows = 0
            while True:
                r = k.next(request)
                if "done" in r:
                    break
                if "logits" in r:
                    equal(r["logits"]["f32"], right[r["logits"].get("row", 0)], "a late row")
                    rows += 1
            equal(rows, TOKENS, "rows")
            k.close()
        c.close()


main()
