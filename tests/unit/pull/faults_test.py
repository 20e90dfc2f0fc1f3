#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Failures of a download: broken connections, servers that lie, full disks, two downloads at once.

A partial file never has a model's name.
"""

import json
import os
import resource
import signal
import tempfile

from hub import Site, check, equal, make_model, wait_for


def read(path):
    with open(path, "rb") as f:
        return f.read()


def fresh(s):
    for name in s.kept():
        os.remove(s.path(name))
    s.seen.clear()
    s.faults, s.hashes, s.sizes, s.etags = [], {}, {}, {}
    s.ranges = s.linked = s.redirects = True
    s.chunked = False


def asked(s):
    """The downloaded ranges, without those of the header."""
    return [
        q["range"]
        for q in s.seen
        if q["path"].endswith(".gguf")
        and (q["host"] == "store" or not s.redirects)
        and (q["range"] is None or q["range"].endswith("-"))
    ]


def whole(s, model, name="some/Tiny/Tiny-Q8_0.gguf"):
    equal(s.kept(), [name], "what is kept")
    check(read(s.path(name)) == model, "its bytes are others")


def test_breaks(s, model):
    fresh(s)
    n = len(model)
    s.faults = [("cut", n // 3), 503, ("cut", 10), 429]
    _, err = s.ntx("pull", "hf:some/Tiny")
    whole(s, model)
    equal(asked(s), [None] + ["bytes=%d-" % (n // 3)] * 2 + ["bytes=%d-" % (n // 3 + 10)] * 2, "what was asked for")
    check(err.count("going on in") == 4 and "very-secret" not in err, err)


def test_never_ends(s):
    fresh(s)
    s.faults = [503] * 6
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("cannot answer now (503)" in err and "very-secret" not in err, err)
    check("some/Tiny/Tiny-Q8_0.gguf" not in s.kept(), s.kept())


def test_no_ranges(s, model):
    fresh(s)
    s.ranges = False
    s.faults = [("cut", 1000), ("cut", 500)]
    s.ntx("pull", "hf:some/Tiny")
    whole(s, model)


def test_interrupted(s, model):
    """A pull may be killed at any moment; a second one at the same time is refused; bytes are not requested twice."""
    fresh(s)
    s.hanging.clear()
    s.go_on.clear()
    s.faults = [("hang", 5000)]
    p = s.start("pull", "hf:some/Tiny")
    check(s.hanging.wait(60), "nothing was pulled")
    wait_for(
        lambda: (
            os.path.exists(s.path("some/Tiny/.Tiny-Q8_0.gguf.part"))
            and os.path.getsize(s.path("some/Tiny/.Tiny-Q8_0.gguf.part")) == 5000
        ),
        20,
        "5000 bytes",
    )
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("is being pulled by another ntx" in err, err)
    check("0 of 1 files" in s.ntx("list")[0], s.ntx("list"))
    p.send_signal(signal.SIGKILL)
    p.communicate()
    s.go_on.set()
    s.seen.clear()
    s.ntx("pull", "hf:some/Tiny")
    equal(asked(s), ["bytes=5000-"], "what was asked for")
    whole(s, model)


def test_two_at_once(s, model):
    fresh(s)
    ps = [s.start("pull", "hf:some/Tiny") for _ in range(4)]
    codes = [(p.communicate(timeout=120), p.returncode) for p in ps]
    check(any(c == 0 for _, c in codes) and all(c == 0 or "another ntx" in text[1] for text, c in codes), codes)
    whole(s, model)


def test_hash(s, model):
    fresh(s)
    s.hashes["Tiny-Q8_0.gguf"] = "0" * 64
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("SHA-256" in err and "discarded" in err, err)
    equal(s.kept(), [], "what is kept")
    fresh(s)  # a part whose bytes rotted
    os.makedirs(s.path("some/Tiny"), exist_ok=True)
    s.faults = [("cut", 4000)] + [404]
    s.ntx("pull", "hf:some/Tiny", code=111)
    with open(s.path("some/Tiny/.Tiny-Q8_0.gguf.part"), "r+b") as f:
        equal(len(f.read()), 4000, "bytes of the part")
        f.seek(100)
        f.write(b"rotten")
    s.ntx("pull", "hf:some/Tiny", code=111)
    equal(s.kept(), [], "what is kept")
    s.ntx("pull", "hf:some/Tiny")
    whole(s, model)


def test_changed(s, model, other):
    """The present part belongs to another file."""
    fresh(s)
    s.faults = [("cut", 4000), 404]
    s.ntx("pull", "hf:some/Tiny", code=111)
    s.files["Tiny-Q8_0.gguf"] = other
    s.seen.clear()
    s.ntx("pull", "hf:some/Tiny")
    equal(asked(s), [None], "what was asked for")
    whole(s, other)
    fresh(s)  # by an address, where only the ETag tells
    url = s.store + "/Tiny-Q8_0.gguf"
    s.faults = [("cut", 4000), 404]
    s.ntx("pull", url, code=111)
    s.seen.clear()
    s.ntx("pull", url)
    equal([q["if_range"] is not None for q in s.seen][-1:], [True], "If-Range")
    equal(asked(s), ["bytes=4000-"], "what was asked for")
    whole(s, other, "Tiny-Q8_0.gguf")
    fresh(s)
    s.faults = [("cut", 4000), 404]
    s.ntx("pull", url, code=111)
    s.files["Tiny-Q8_0.gguf"] = model
    s.ntx("pull", url)
    whole(s, model, "Tiny-Q8_0.gguf")
    fresh(s)  # nothing tells: it begins anew
    s.etags["Tiny-Q8_0.gguf"] = 'W/"weak"'
    s.faults = [("cut", 4000)]
    s.ntx("pull", url)
    equal(asked(s), [None, None], "what was asked for")
    whole(s, model, "Tiny-Q8_0.gguf")


def test_lengths(s, model):
    fresh(s)
    s.sizes["Tiny-Q8_0.gguf"] = len(model) + 1
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("the server has %d bytes of it, the list says %d" % (len(model), len(model) + 1) in err, err)
    fresh(s)
    s.chunked, s.ranges = True, False
    _, err = s.ntx("pull", s.store + "/Tiny-Q8_0.gguf", code=111)
    check("does not tell how long it is" in err, err)
    fresh(s)
    s.faults = [("shift", 7)]
    s.fault_from = lambda range_: range_ and not range_.endswith("-")
    s.ntx("pull", "hf:some/Tiny", code=111)
    s.fault_from = lambda range_: range_ is None or range_.endswith("-")
    equal([n for n in s.kept() if not os.path.basename(n).startswith(".")], [], "what is kept")
    fresh(s)
    s.files["Tiny-Q8_0.gguf"] = model[:3000]
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("no GGUF, or its header is not whole" in err, err)
    s.files["Tiny-Q8_0.gguf"] = b"<html>" * 1000
    _, err = s.ntx("pull", s.store + "/Tiny-Q8_0.gguf", code=111)
    check("no GGUF" in err, err)
    s.files["Tiny-Q8_0.gguf"] = model


def test_addresses(s, model):
    fresh(s)
    for bad in (
        "%2e%2e%2fx.gguf",
        ".hidden.gguf",
        "a%00b.gguf",
        "x.bin",
        "",
        "a%5cb.gguf",
        "%0a.gguf",
        "-x.gguf",
        "a" * 300 + ".gguf",
        "%c3%a4.gguf",
    ):
        _, err = s.ntx("pull", s.store + "/" + bad, code=111)
        check("does not end with the name of a GGUF" in err, bad, err)
    _, err = s.ntx("pull", "http://me:secret@127.0.0.1/x.gguf", code=111)
    check("password" in err and "secret" not in err, err)
    s.redirect = "file:///etc/%s"
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("no address of HTTP" in err, err)
    s.redirect = s.url + "/some/Tiny/resolve/main/%s"
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("more than 8 redirects" in err, err)
    s.redirect = s.store + "/%s?signature=very-secret"
    for body in (
        b"",
        b"{}",
        b"[",
        b"[[[[",
        b'[{"type": "file", "path": 7}]',
        b'[{"type": "file", "path": "../../evil.gguf", "size": -5, "lfs": 3}]',
    ):
        s.list_body = body
        s.ntx("pull", "hf:some/Tiny", code=111)
    s.list_body = None
    equal(s.kept(), [], "what is kept")
    check(not os.path.exists(os.path.join(s.data, "evil.gguf")), "a file outside of the store")
    os.makedirs(s.path("some/Tiny"), exist_ok=True)
    os.symlink("/dev/null", s.path("some/Tiny/.Tiny-Q8_0.gguf.part"))
    s.ntx("pull", "hf:some/Tiny", code=111)
    os.remove(s.path("some/Tiny/.Tiny-Q8_0.gguf.part"))
    with open(s.path("some/Tiny/Tiny-Q8_0.gguf"), "w") as f:
        f.write("mine")
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("is another file: take it away first" in err and read(s.path("some/Tiny/Tiny-Q8_0.gguf")) == b"mine", err)


def test_slow(s, model):
    """A server that sends slowly, is silent or never ends its header.

    The error comes after --stall-s seconds, or six times that; what was received stays.
    """
    fresh(s)
    s.go_on.clear()
    for how, words in (
        ("drip", "Operation too slow"),
        ("silent", "Operation too slow"),
        ("header", "a header that does not end within 256 KiB"),
    ):
        s.endless = how
        _, err = s.ntx("pull", "hf:some/Tiny", "--stall-s", "1", code=111)
        check(words in err, how, err)
    s.endless = None
    s.faults = [("drip", 4000)] + [("drip", 5)] * 8
    _, err = s.ntx("pull", "hf:some/Tiny", "--stall-s", "1", code=111)
    check(err.count("going on in") == 5 and "Operation too slow" in err, err)
    check(4000 < os.path.getsize(s.path("some/Tiny/.Tiny-Q8_0.gguf.part")) < len(model), "what has come")
    s.go_on.set()
    s.faults = []
    for bad in ("0", "-1", "x", "3601"):
        s.ntx("pull", "hf:some/Tiny", "--stall-s", bad, code=100)


def test_many(s):
    """A list of four times as many files takes about four times as long, not sixteen times."""

    def seconds(n):
        s.list_body = json.dumps([{"type": "file", "path": "m%d-Q4_0.gguf" % i, "size": 1} for i in range(n)]).encode()
        before = used()
        _, err = s.ntx("pull", "hf:some/Many:Q4_0", code=111)
        check("several files are of this type" in err, err)
        return used() - before

    def used():
        r = resource.getrusage(resource.RUSAGE_CHILDREN)
        return r.ru_utime + r.ru_stime

    few, many = min(seconds(12000) for _ in range(3)), min(seconds(48000) for _ in range(2))
    s.list_body = None
    check(many < 9 * few, "12000 files took", few, "s of the processor, 48000", many)


def test_full(s, model):
    """A lack of space: reported before the download, or when a write fails in the middle."""
    fresh(s)
    s.totals["Tiny-Q8_0.gguf"] = s.sizes["Tiny-Q8_0.gguf"] = 1 << 50
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("1.0 PiB are to come" in err or "1024.0 TiB are to come" in err, err)
    equal((s.kept(), asked(s)), ([], []), "what is kept, and what was asked for")
    s.totals.clear()
    fresh(s)
    os.makedirs(s.path("some/Tiny"), exist_ok=True)
    os.chmod(s.path("some/Tiny"), 0o500)
    if os.geteuid():
        _, err = s.ntx("pull", "hf:some/Tiny", code=111)
        check("Permission denied" in err, err)
    os.chmod(s.path("some/Tiny"), 0o700)


with tempfile.TemporaryDirectory(prefix="ntx-pull-") as d, Site(d) as site:
    path = os.path.join(d, "m.gguf")
    tiny = read(make_model(path, "--layers", "2", "--embd", "128", "--ff", "256", "--heads", "4"))
    other_one = read(make_model(path, "--layers", "2", "--embd", "128", "--ff", "256", "--heads", "4", "--seed", "2"))
    site.files = {"Tiny-Q8_0.gguf": tiny}
    test_breaks(site, tiny)
    test_never_ends(site)
    test_no_ranges(site, tiny)
    test_interrupted(site, tiny)
    test_two_at_once(site, tiny)
    test_hash(site, tiny)
    test_changed(site, tiny, other_one)
    test_lengths(site, tiny)
    test_addresses(site, tiny)
    test_full(site, tiny)
    test_many(site)
    test_slow(site, tiny)
