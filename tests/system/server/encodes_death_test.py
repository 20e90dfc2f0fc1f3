#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Daemons die while a picture is encoded, of weights that stay or that are read for it. The text is the same; after the
death of ntx-computed, a picture whose rows were in a file by then is not encoded again. Reads of the projector fail:
they are tried again, or the picture is refused by one error, and texts go on."""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import images_cases as cases  # noqa: E402
from daemons import BIN, Daemons, check, equal, wait_for, wire  # noqa: E402

KIND, SIDE = "qwen3vl_merger", 36
tmp = tempfile.TemporaryDirectory(prefix="ntx-server-encodes-", dir=os.environ.get("TMPDIR"))
if not os.path.exists(os.path.join(BIN, "ntx-mkmodel")):
    print("skipped: ntx-mkmodel is not built")
    sys.exit(77)


def path(name):
    return os.path.join(tmp.name, name)


def load(d, **options):
    c = d.client(300)
    return c, cases.load(c, KIND, path("model"), path("projector"), **options)


PICTURES = [cases.png(p) for p in ((3, 3, 1), (SIDE, SIDE, 2), (SIDE, SIDE, 3), (SIDE, SIDE, 4))]


def question(first, n):
    images = [{"at": 1, "data": PICTURES[i]} for i in range(first, first + n)]
    return dict(prompt="ab", images=images, raw=1, ignore_eos=1, max_tokens=8, sampling=dict(temp=0.0))


def encoding(c, request, done):
    """Waits until so many thousandths of the pictures are encoded."""
    while c.until(request, "progress").get("done", 0) < done:
        pass


def workers_die(want, ram):
    for victims in (("iod",), ("predictor",), ("iod", "predictor")):
        with Daemons() as d:
            c, info = load(d, ram_bytes=ram)
            equal(info["projector_streams"], ram < 1 << 29, "whether the projector streams")
            request = c.send("generate", question(0, 4))
            encoding(c, request, 1)
            for name in victims:
                d.kill(name)
            equal(c.answer(request).tokens, want, ("after the death of", victims))


def refusal(ask):
    try:
        ask()
    except wire.Refused as e:
        return str(e)
    return check(False, "it was not refused")


def bytes_of_projector(d):
    text = subprocess.check_output([os.path.join(BIN, "ntx-metrics"), "--runtime", d.dir], text=True)
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("ntx_iod_bytes_projector_total"))


def reads_fail(want, ram):
    text = dict(prompt="abc", raw=1, ignore_eos=1, max_tokens=4, sampling=dict(temp=0.0))
    with Daemons() as d:
        c, _ = load(d, ram_bytes=ram, fault="iod:eio@stage,nth=3;short@stage,nth=7")
        equal(c.ask(**question(0, 4)).tokens, want, "after reads that were tried again")
        check(bytes_of_projector(d) > os.path.getsize(path("projector")), "bytes of the projector")
    with Daemons() as d:
        c, _ = load(d, ram_bytes=ram, fault="iod:kill@stage,nth=9,start=1;kill@stage,nth=40,start=2")
        equal(c.ask(**question(0, 4)).tokens, want, "after deaths in the middle of reads")
    with Daemons() as d:
        c, _ = load(d, ram_bytes=ram, fault="iod:eio@stage")
        said = refusal(lambda: c.ask(**question(1, 1)))
        check("the projector's weights cannot be read: cannot read " in said and "Input/output error" in said, said)
        answered = c.ask(**text).tokens
        refusal(lambda: c.ask(**question(1, 1)))
        equal(c.ask(**text).tokens, answered, "texts beside pictures that are refused")


def client_leaves(want, ram):
    """While ntx-iod does not answer, too: the next picture waits for nothing but what was begun."""
    with Daemons() as d:
        c, _ = load(d, ram_bytes=ram, fault="iod:delay=2s@stage,nth=9")
        leaver = d.client(300)
        request = leaver.send("generate", question(1, 1))
        wait_for(lambda: bytes_of_projector(d) > 0, 20, "the first read")
        leaver.close()
        equal(c.ask(**question(0, 4)).tokens, want, "after a client that left")
        check(request, "a request was sent")


def connects(d):
    try:
        d.client().close()
    except OSError:
        return False
    return True


def computed_dies(want):
    with open(path("ntx.conf"), "w") as f:
        f.write("[prefix]\nstate = %s\n" % path("state"))
    with Daemons("--config", path("ntx.conf")) as d:
        c, _ = load(d)
        request = c.send("generate", question(0, 4))
        encoding(c, request, 1001)
        d.restart = False
        d.kill("computed")
        try:
            c.answer(request)
            check(False, "an answer of a daemon that is dead")
        except wire.Gone:
            pass
        kept = sum(n.endswith(".rows") for n in os.listdir(path("state")))
        check(1 <= kept < 4, "files of rows:", kept)
        for name in ("iod", "predictor"):
            wait_for(lambda name=name: d.child[name].poll() is not None, 5, "the end of " + name)
        d.spawn("computed")
        d.restart = True
        wait_for(lambda: connects(d), 10, "the next daemon")
        c, _ = load(d)
        a = c.ask(**question(0, 4))
        equal(a.tokens, want, "after the death of ntx-computed")
        equal(json.loads(a.stats)["pictures_encoded"], 4 - kept, "pictures that were not in files")


def least():
    with Daemons() as d:
        try:
            load(d, ram_bytes=1 << 20)
        except wire.Refused as e:
            return int(str(e).split("(")[1].split(" bytes")[0])
    return check(False, "a budget of 1 MiB was enough")


cases.make(BIN, KIND, path("model"), path("projector"))
with Daemons() as d:
    want = load(d)[0].ask(**question(0, 4)).tokens
equal(len(want), 8, "tokens")
workers_die(want, 1 << 30)
little = least() + (1 << 20)
workers_die(want, little)
reads_fail(want, little)
client_leaves(want, little)
computed_dies(want)
