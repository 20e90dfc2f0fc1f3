#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A load does not block the service.

A model whose reads never return, and whose close does not, blocks no other client; it ends when its client leaves or
when the service stops. A load that fails leaves the former model in place, also when the failure is found only after
that one had to be unloaded.
"""

import json
import os
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import Daemons, check, equal, fail, make_model, patience, refused, wait_for  # noqa: E402
from fuse import Stuck  # noqa: E402
from rights import as_member, service  # noqa: E402

SLOW = float(os.environ.get("NTX_TEST_SLOW", "1"))
tmp = tempfile.TemporaryDirectory(prefix="ntx-server-loads-")
SHAPE = ("--layers", "4", "--embd", "256", "--ff", "768", "--heads", "8", "--kv", "2", "--type", "Q8_0")
model = make_model(os.path.join(tmp.name, "m.gguf"), *SHAPE, "--seed", "2")
other = make_model(os.path.join(tmp.name, "o.gguf"), *SHAPE, "--seed", "3")
os.chmod(tmp.name, 0o755)
LOAD = {"ram_bytes": 12 << 20, "ctx": 128}


def text(c):
    return c.ask("Once", max_tokens=9, ignore_eos=True).tokens


def begin(c, stuck):
    return c.send("load", dict(LOAD, names=["stuck"]), [stuck])


def takers(d):
    """The processes that open models, found by their parent, including those that cannot be killed."""
    n = 0
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % p) as f:
                n += int(f.read().rsplit(")", 1)[1].split()[1]) == d.child["computed"].pid
        except OSError:
            pass
    return n


def others_go_on():
    with Daemons(restart=False) as d, Stuck() as stuck:
        c = d.client(20 * SLOW)
        c.load(model, **LOAD)
        want = text(c)
        requester = d.client()
        begin(requester, stuck)
        wait_for(lambda: takers(d), 10, "who looks at the model")
        equal(text(c), want, "an answer while a load is stuck")
        equal(json.loads(c.status())["state"], "ready", "the state while a load is stuck")
        c.load(other, **LOAD)
        check(text(c) != want, "the other model says the same")
        c.load(model, **LOAD)
        equal(text(c), want, "after a load beside a stuck one")
        requester.close()
        # Only so many loads of one user may be stuck at a time; more are refused, and all else goes on.
        requesters = [d.client() for _ in range(8)]
        for a in requesters:
            begin(a, stuck)
        wait_for(lambda: takers(d) >= 4, 10, "four that look at models")
        check(takers(d) <= 4, takers(d), "processes for one user")
        refused(
            lambda: c.load(model, **LOAD),
            "too many models are being opened",
            "a load beside as many stuck ones as may be",
        )
        equal(text(c), want, "an answer beside all of them")
        # A stop waits for none of them.
        began = time.monotonic()
        c.until(c.send("stop", {"grace_ms": 1}), "done")
        equal(d.child["computed"].wait(60 * patience()), 0, "exit code")
        took = time.monotonic() - began
        check(took < 5 * SLOW * patience(), "the end took", took, "s")


def none_ready():
    """Without a loaded model: requests wait for a stuck load, and get an error as soon as the service stops."""
    with Daemons(restart=False) as d, Stuck() as stuck:
        c, requester = d.client(20 * SLOW), d.client(20 * SLOW)
        request = begin(requester, stuck)
        wait_for(lambda: json.loads(c.status())["state"] == "loading", 10, "the load")
        stop = c.send("stop", {"grace_ms": 1})
        refused(lambda: requester.next(request), "shutting down", "a stuck load at the end")
        c.until(stop, "done")
        equal(d.child["computed"].wait(60 * patience()), 0, "exit code")


def of_a_member():
    """A file on another user's own FUSE file system is not accepted at all."""

    def act(c):
        request = begin(c, stuck)
        refused(lambda: c.next(request), "FUSE", "a member's file of a user-space file system")

    with service("[model]\nram = 32M\n") as d, Stuck() as stuck:
        c = d.client(20 * SLOW)
        c.load(model, **LOAD)
        want = text(c)
        as_member(d, act)
        equal(text(c), want, "an answer after that")


def failed_loads():
    with Daemons() as d:
        c = d.client()
        c.load(model, **LOAD)
        want = text(c)
        refused(lambda: c.load(other, **LOAD, fault="cosmic rays"), "expected iod:", "a fault for nobody")
        equal(json.loads(c.status())["state"], "ready", "the state after a load that was refused")
        # An error that only a worker can find comes after the old model was unloaded: that is loaded again.
        for options in (
            dict(fault="iod:cosmic=rays"),
            dict(skip="script:99"),
            dict(skip="guess"),
            dict(fault="predictor:rays"),
        ):
            refused(lambda: c.load(other, **LOAD, **options), "loaded again", "a load with %s" % options)
            equal(text(c), want, "after a load with %s" % options)
            wait_for(lambda: json.loads(c.status())["state"] == "ready", 10, "the old model, all of it")
        c.load(other, **LOAD)
        check(text(c) != want, "the other model says the same")


def workers_die_meanwhile():
    """A worker ends while a thread frees the model: the freed model is not accessed again."""
    with Daemons() as d:
        c = d.client(20 * SLOW)
        for i in range(12):
            c.load(model, **LOAD)
            ends = c.send("unload")
            time.sleep(i * 5e-4)
            d.kill("iod" if i % 3 else "predictor")
            c.until(ends, "done")
        c.load(model, **LOAD)
        check(text(c), "no answer after workers' deaths")


failed_loads()
workers_die_meanwhile()
others_go_on()
none_ready()
if not os.getuid():
    of_a_member()
print("loads keep apart")
