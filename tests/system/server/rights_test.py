#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a member of the service's group may not do, and what it may.

Not: have paths opened with the daemon's rights, take more memory than configured, inject faults, stop the service. It
may load what it can read, and use whatever ntx.conf gives it.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import Daemons, check, equal, make_model, patience, refused, wait_for  # noqa: E402
from rights import as_member, service  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-rights-")
SHAPE = ("--layers", "2", "--embd", "256", "--ff", "512", "--heads", "8", "--kv", "2", "--type", "Q8_0")
model = make_model(os.path.join(tmp.name, "m.gguf"), *SHAPE)
secret = os.path.join(tmp.name, "secret.gguf")
with open(secret, "w") as f:
    f.write("XYZW is what nobody may see\n" * 9)
os.chmod(secret, 0o600)
os.chmod(tmp.name, 0o755)


def no_path(c):
    """The answer is the same for files that exist, do not exist and are secret, for every kind of request.

    No byte of them is disclosed.
    """
    answers = set()
    fd = os.open(model, os.O_RDONLY)
    for path in (model, secret, "/no/such/file"):
        for fds, more in (([], {}), ([fd], {"sidecar": 1}), ([fd], {}), ([fd, fd], {"sidecar": 1})):
            request = c.send("load", dict(more, path=path, ram_bytes=16 << 20), fds)
            answers.add(
                refused(
                    lambda: c.next(request),
                    "descriptors, not its path",
                    "path %s with %d descriptors" % (path, len(fds)),
                )
            )
        request = c.send("load", {"also": [path], "names": ["m"]}, [fd])
        answers.add(refused(lambda: c.next(request), "descriptors, not its path", "a copy at %s" % path))
    request = c.send("load", {"sidecar": 1, "names": ["m"]}, [fd])
    refused(lambda: c.next(request), "neither a path nor descriptors", "a sidecar without a model")
    os.close(fd)
    equal(len(answers), 1, "answers to paths: %s" % answers)


def member(c):
    no_path(c)
    refused(
        lambda: c.load(model, ctx=64, ram_bytes=33 << 20),
        r"33.0 MiB.*32.0 MiB.*administrators",
        "more memory than configured",
    )
    refused(lambda: c.load(model, ctx=64, fault="iod:delay=1ms"), "not started for tests", "fault rules")
    refused(lambda: c.load(model, ctx=64, kv_ram=1 << 20), r"not --state or --kv-ram", "memory for K and V")
    refused(
        lambda: c.load(model, ctx=64, state="/elsewhere"),
        r"ntx.conf sets where state is kept.*\(\[prefix\] state, kv_ram\), not --state",
        "a place for state",
    )
    refused(lambda: c.until(c.send("stop", {"grace_ms": 1}), "done"), r"admin = group", "a stop")
    c.load(model, ctx=64, ram_bytes=24 << 20)
    equal(len(c.ask("Once", max_tokens=3, ignore_eos=True).tokens), 3, "tokens for a member")


def owner(d):
    c = d.client()
    no_path(c)
    refused(lambda: c.load(model, ctx=64, fault="iod:delay=1ms"), "not started for tests", "fault rules")
    refused(
        lambda: c.load(model, ctx=64, state="/elsewhere"),
        r"ntx.conf sets where state is kept.*\(\[prefix\] state, kv_ram\), not --state",
        "a place for state",
    )
    c.load(model, ctx=64, ram_bytes=33 << 20)
    c.until(c.send("stop", {"grace_ms": 1000}), "done")
    equal(d.child["computed"].wait(60 * patience()), 0, "exit code")


def theirs(c):
    """Other users' texts are found in the cache only if ntx.conf allows it; one's own always."""
    cached = [c.ask("Once upon a time", max_tokens=3, ignore_eos=True).cached for _ in range(2)]
    check(cached[1] > 0 and (cached[0] > 0) == shared, "cached tokens of a member:", cached)


def preamble(c):
    """[prefix] in ntx.conf is for all users, and computed before the first request."""
    with open(os.path.join(tmp.name, "system.txt")) as f:
        text = f.read().strip() + " "
    a, b = c.ask(text + "What now?", max_tokens=3, ignore_eos=True), c.ask("It", max_tokens=3, ignore_eos=True)
    check(
        a.cached > a.started["prompt_tokens"] - 9 and b.cached <= 3,
        "cached tokens with a preamble:",
        a.cached,
        a.started["prompt_tokens"],
        b.cached,
    )


def group_admin(c):
    c.load(model, ctx=64, ram_bytes=33 << 20)
    c.until(c.send("stop", {"grace_ms": 1000}), "done")


with service("[model]\nram = 32M\n") as d:
    if not os.getuid():
        as_member(d, member)
        check(json.loads(d.client().status())["state"] == "ready", "the member's model is gone")
    owner(d)
if not os.getuid():
    with service("[model]\nram = 32M\n[clients]\nadmin = group\n") as d:
        as_member(d, no_path)
        as_member(d, group_admin)
        equal(d.child["computed"].wait(60 * patience()), 0, "exit code")
    system = os.path.join(tmp.name, "system.txt")
    with open(system, "w") as f:
        f.write("You are brief, and kind to all who ask. " * 5 + "\n")
    with service("[model]\npath = %s\nram = 24M\nctx = 256\n[prefix]\nfile = %s\n" % (model, system)) as d:
        wait_for(lambda: "is computed" in d.text(), 60, "the preamble")
        as_member(d, preamble)
    for shared in (False, True):
        with service("[clients]\nshare = %s\n" % ("all" if shared else "user")) as d:
            c = d.client()
            c.load(model, ctx=64, ram_bytes=24 << 20)
            c.ask("Once upon a time", max_tokens=3, ignore_eos=True)
            as_member(d, theirs)
with service("", "--fault", "") as d:  # started for tests
    d.client().load(model, ctx=64, ram_bytes=24 << 20, fault="iod:delay=1ms")
with Daemons() as d:  # a private one: whoever can ask is whoever started it
    c = d.client()
    no_path(c)
    c.load(model, ctx=64, ram_bytes=24 << 20, fault="iod:delay=1ms")
if os.getuid():
    print("skipped: the part of a second user, which needs root")
    sys.exit(77)
print("members do what they may")
