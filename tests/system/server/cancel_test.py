#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Cancelling and leaving in the middle of a pass that does not end, since ntx-iod is stopped.

Both take effect at once if nobody else is in the pass, disturb nobody if there is somebody, and later answers are
right.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import Daemons, check, equal, make_model, wait_for  # noqa: E402

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
    "5",
)
PLAN = {
    "ram_bytes": 10 << 20,
    "ctx": 64,
    "sessions": 2,
    "max_rows": 8,
    "threads": 2,
    "ring_slots": 4,
    "chunk_bytes": 1 << 20,
}
TELL = dict(ignore_eos=True, max_tokens=4)


def right(d, want):
    """The expected texts, from a fast drive."""
    c = d.client()
    c.load(model, **PLAN)
    equal(c.ask("A dog", **TELL).tokens, want, "the answer after all that")
    c.close()


def in_a_pass(d, c, request):
    session = c.until(request, "started")["session"]
    wait_for(lambda: status(d)["sessions"] == 1, 5, "a session that runs")
    return session


def status(d):
    k = d.client()
    s = json.loads(k.status())
    k.close()
    return s


def main():
    with Daemons() as d:
        c = d.client()
        info = c.load(model, **PLAN)
        streamed = json.loads(info["info_json"])["bytes_storage"]
        check(streamed > 8 << 20, "only", streamed, "bytes are streamed")
        want = c.ask("A dog", **TELL).tokens

        # Cancelled in the middle of a pass: the answer ends with the tokens so far, and the connection stays usable.
        with d.held("iod"):
            request = c.generate("A dog", **TELL)
            in_a_pass(d, c, request)
            c.send("cancel", {"target": request})
            a = c.answer(request)
        equal((a.finish, a.tokens), ("cancel", []), "what was cancelled")

        # A session that is kept is closed in the middle of its pass.
        with d.held("iod"):
            request = c.generate("A dog", keep=True, **TELL)
            session = in_a_pass(d, c, request)
            c.send("close_session", {"session": session})
            equal(c.answer(request).finish, "cancel", "what was closed")

        # A client that leaves releases what it used.
        with d.held("iod"):
            other = d.client()
            in_a_pass(d, other, other.generate("A dog", **TELL))
            other.close()
            wait_for(lambda: status(d)["sessions"] == 0, 3, "the session of who left")

        # A kept session continues after one of its passes was aborted, and its KV is that of its tokens.
        with d.held("iod"):
            request = c.generate(tokens=[5, 6, 7], keep=True, **TELL)
            session = in_a_pass(d, c, request)
            c.send("cancel", {"target": request})
            equal(c.answer(request).tokens, [], "tokens of the first part")
        goes_on = c.ask(tokens=[8, 9], session=session, **TELL)
        equal(goes_on.tokens, c.ask(tokens=[5, 6, 7, 8, 9], **TELL).tokens, "what was cut short and went on")

        # Another client of the same pass is not disturbed: both join one pass, and one of them is cancelled. (With a
        # second per pass neither ends before.)
        c.load(model, link_nvme_bps=streamed, **PLAN)
        other = d.client()
        mine, theirs = c.generate("A dog", **TELL), other.generate("A dog", ignore_eos=True, max_tokens=50)
        c.until(mine, "token")
        with d.held("iod"):
            other.send("cancel", {"target": theirs})
        equal(other.answer(theirs).finish, "cancel", "who was cancelled")
        rest = c.answer(mine)
        equal((rest.finish, want[1:]), ("length", rest.tokens), "who shared its passes")
        other.close()
        c.close()
        right(d, want)


main()
