#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""While a picture is encoded, other clients' texts are read and answered. Its client sees the progress; the encode ends
soon when that client leaves or takes its request back, and statistics and counters know of it."""

import functools
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import images_cases as cases  # noqa: E402
from daemons import BIN, Daemons, check, equal  # noqa: E402

KIND = "qwen3vl_merger"
COLUMNS, ROWS = 48, 48  # 2304 rows of the text: a second of work for the tower
tmp = tempfile.TemporaryDirectory(prefix="ntx-server-encodes-", dir=os.environ.get("TMPDIR"))
if not os.path.exists(os.path.join(BIN, "ntx-mkmodel")):
    print("skipped: ntx-mkmodel is not built")
    sys.exit(77)


def path(name):
    return os.path.join(tmp.name, name)


def counters(d):
    text = subprocess.check_output([os.path.join(BIN, "ntx-metrics"), "--runtime", d.dir], text=True)
    found = dict(line.split()[:2] for line in text.splitlines() if line.startswith("ntx_comp_picture"))
    return [float(found["ntx_comp_%s_total" % n]) for n in ("pictures", "pictures_encoded", "picture_rows")]


@functools.cache
def png(seed):
    return cases.png((COLUMNS, ROWS, seed))


def large(seed, count=1):
    images = [{"at": 1, "data": png(seed + i)} for i in range(count)]
    return dict(prompt="ab", images=images, raw=1, ignore_eos=1, max_tokens=1, sampling=dict(temp=0.0))


def small(seed):
    return dict(large(seed), images=[{"at": 1, "data": cases.png((3, 3, seed))}])


def progress(c, request):
    while True:
        p = c.until(request, "progress", "started")
        check("phase" in p, "a picture was encoded before anybody could look at it")
        if p["phase"] == "picture":
            return p


def others_go_on(d, seer, other):
    text = dict(prompt="abc", raw=1, ignore_eos=1, max_tokens=8)
    want = other.ask(**text).tokens
    seen = seer.ask(**small(1)).tokens
    request = seer.send("generate", large(1, 3))
    first = progress(seer, request)
    equal(first["total"], 3000, "thousandths of three pictures")
    equal(other.ask(**text).tokens, want, "a text beside the encode")
    equal(other.ask(**small(1)).tokens, seen, "a picture that is known beside the encode")
    a = seer.answer(request)
    far = [p["done"] for p in a.progress if p["phase"] == "picture"]
    check(far, "the text and the known picture came before the large pictures were encoded")
    check(far == sorted(far) and far[-1] > 1000, far)
    stats = json.loads(a.stats)
    equal([stats[k] for k in ("pictures", "pictures_encoded", "picture_tokens")], [3, 3, 3 * COLUMNS * ROWS], stats)
    check(0 < stats["picture_s"] <= stats["ttft_s"], stats)
    again = seer.ask(**large(1, 3))
    equal(json.loads(again.stats)["pictures_encoded"], 0, "encoded again")
    check("pictures" not in json.loads(other.ask(**text).stats), "pictures of a text")
    rows = 2 * 3 * COLUMNS * ROWS + 2 * 9
    equal(counters(d), [8, 4, rows], "counters: pictures, of which encoded, their rows")


def leaves(d, other):
    """The work is not done to its end when its clients have gone."""
    before = counters(d)
    leaver, canceller = d.client(300), d.client(300)
    request = leaver.send("generate", large(10, 3))
    progress(leaver, request)
    behind = canceller.send("generate", large(10, 3))
    leaver.close()
    progress(canceller, behind)  # the first encode has ended
    canceller.until(canceller.send("cancel", {"target": behind}), "done")
    equal(canceller.answer(behind).finish, "cancel", "a request that was taken back")
    a = other.ask(**small(2))
    equal(json.loads(a.stats)["pictures_encoded"], 1, "a picture after those of clients that left")
    check(counters(d)[1] - before[1] < 4, "pictures of clients that left were encoded to the end")


cases.make(BIN, KIND, path("model"), path("projector"))
with Daemons() as d:
    c, other = d.client(300), d.client(300)
    cases.load(c, KIND, path("model"), path("projector"), ctx=8192)
    others_go_on(d, c, other)
    leaves(d, other)
