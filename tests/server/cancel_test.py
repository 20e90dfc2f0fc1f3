#!/usr/bin/env python3
"""With a drive so slow that a pass takes seconds: cancelling and leaving take effect at once where nobody else is in the pass, disturb nobody
where there is, and what comes afterwards is right."""
import json
import os
import tempfile
import time

from daemons import Daemons, check, equal, make_model, wait_for

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-model-")
model = make_model(os.path.join(tmp.name, "m.gguf"), "--layers", "6", "--embd", "512", "--ff", "1536", "--heads", "8", "--kv", "2", "--type", "Q8_0", "--seed", "5")
SOON = 0.5 * float(os.environ.get("NTX_TEST_SLOW", "1"))  # 0.1 s on a quiet machine: others use this one, too
PASS = 8.0  # seconds: streamed bytes / rate
PLAN = {"ram_bytes": 9 << 20, "ctx": 64, "sessions": 2, "max_rows": 8, "threads": 2, "ring_slots": 4, "chunk_bytes": 1 << 20}
TELL = dict(ignore_eos=True, max_tokens=4)


def right(d, want):
    """What everything must come to on a fast drive."""
    c = d.client()
    c.load(model, **PLAN)
    equal(c.ask("A dog", **TELL).tokens, want, "the answer after all that")
    c.close()


def slow(c, rate):
    return c.load(model, link_nvme_bps=rate, **PLAN)


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
        want = c.ask("A dog", **TELL).tokens
        rate = streamed / PASS
        slow(c, rate)

        # Cancelled in the middle of a pass: the answer ends with what there is, and nothing is lost of the connection.
        request = c.generate("A dog", **TELL)
        in_a_pass(d, c, request)
        t = time.monotonic()
        c.send("cancel", {"target": request})
        a = c.answer(request)
        took = time.monotonic() - t
        equal((a.finish, a.tokens), ("cancel", []), "what was cancelled")
        check(took < SOON, "the cancel took", took, "s; a pass takes", PASS)

        # A session that is kept is closed in the middle of its pass.
        request = c.generate("A dog", keep=True, **TELL)
        session = in_a_pass(d, c, request)
        t = time.monotonic()
        c.send("close_session", {"session": session})
        equal(c.answer(request).finish, "cancel", "what was closed")
        check(time.monotonic() - t < SOON, "closing took", time.monotonic() - t, "s")

        # A client that leaves frees what it held.
        slow(c, rate)
        other = d.client()
        in_a_pass(d, other, other.generate("A dog", **TELL))
        t = time.monotonic()
        other.close()
        wait_for(lambda: status(d)["sessions"] == 0, 5, "the session of who left")
        check(time.monotonic() - t < SOON + 0.5, "leaving took", time.monotonic() - t, "s")

        # A kept session goes on after a pass of it was cut short, and its KV is that of its tokens.
        slow(c, rate * 16)
        request = c.generate(tokens=[5, 6, 7], keep=True, **TELL)
        session = in_a_pass(d, c, request)
        c.send("cancel", {"target": request})
        equal(c.answer(request).tokens, [], "tokens of the first part")
        goes_on = c.ask(tokens=[8, 9], session=session, **TELL)
        equal(goes_on.tokens, c.ask(tokens=[5, 6, 7, 8, 9], **TELL).tokens, "what was cut short and went on")

        # Who shares the pass is not disturbed: both join the same one, one of them is cancelled.
        c.load(model, link_nvme_bps=rate * 8, **PLAN)
        other = d.client()
        mine, theirs = c.generate("A dog", **TELL), other.generate("A dog", **TELL)
        c.until(mine, "token")
        other.send("cancel", {"target": theirs})
        equal(other.answer(theirs).finish, "cancel", "who was cancelled")
        rest = c.answer(mine)
        equal((rest.finish, want[1:]), ("length", rest.tokens), "who shared its passes")
        other.close()
        c.close()
        right(d, want)


main()
