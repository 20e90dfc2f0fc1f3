#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Symbolic links in the store: nothing is written or removed through one that leads out of it.

The path to the store itself may contain links that belong to the user or to root.
"""

import json
import os
import shutil
import tempfile

from hub import Site, check, equal, make_model

NOBODY = 65534


def read(path):
    with open(path, "rb") as f:
        return f.read()


def listing(folder):
    return sorted(
        os.path.relpath(os.path.join(at, f), folder) for at, folders, files in os.walk(folder) for f in files + folders
    )


def begin(s, folder):
    """An empty store, and a folder that must stay as it is."""
    shutil.rmtree(s.data, ignore_errors=True)
    outside = os.path.join(folder, "outside")
    shutil.rmtree(outside, ignore_errors=True)
    os.makedirs(os.path.join(outside, "Tiny"))
    with open(os.path.join(outside, "Tiny", "Tiny-Q8_0.gguf"), "w") as f:
        f.write("precious")
    os.makedirs(s.path())
    return outside


def unharmed(outside, what):
    equal(
        (listing(outside), read(os.path.join(outside, "Tiny", "Tiny-Q8_0.gguf"))),
        (["Tiny", "Tiny/Tiny-Q8_0.gguf"], b"precious"),
        what,
    )


def folders_that_are_links(s, folder):
    for at, to in (("some", ""), ("some/Tiny", "Tiny")):
        outside = begin(s, folder)
        os.makedirs(os.path.dirname(s.path(at)), exist_ok=True)
        os.symlink(os.path.join(outside, to), s.path(at))
        _, err = s.ntx("pull", "hf:some/Tiny", code=111)
        check("is a symbolic link" in err and len(err.strip().splitlines()) <= 2, err)
        unharmed(outside, "a pull through the link " + at)
        check("some/Tiny:Q8_0" in s.ntx("list")[0], "a linked model is a model:", s.ntx("list"))
        _, err = s.ntx("rm", "some/Tiny", code=111)
        check("is a symbolic link" in err, err)
        unharmed(outside, "rm through the link " + at)


def files_that_are_links(s, folder, model):
    for link in (os.symlink, os.link):
        for name in (".Tiny-Q8_0.gguf.part", "Tiny-Q8_0.gguf", ".Tiny-Q8_0.gguf.from"):
            outside = begin(s, folder)
            os.makedirs(s.path("some/Tiny"))
            link(os.path.join(outside, "Tiny", "Tiny-Q8_0.gguf"), s.path("some/Tiny", name))
            _, err = s.ntx("pull", "hf:some/Tiny", code=0 if name.endswith("from") else 111)
            unharmed(outside, "a pull with a %s of %s" % (link.__name__, name))
            if name.endswith("from"):
                equal(read(s.path("some/Tiny/Tiny-Q8_0.gguf")), model, "its bytes")
            elif name.endswith("part") and link == os.link:
                check("hard link" in err, err)
            s.ntx("rm", "some/Tiny")
            unharmed(outside, "rm with a %s of %s" % (link.__name__, name))
            check(not os.path.exists(s.path("some")), "empty folders are left")


def folders_of_any_name(s, folder):
    """The name of another user's folder cannot control the terminal of `ntx list`, and hides nothing."""
    begin(s, folder)
    for name in (b"a\x1b]0;x\x07b", b"caf\xc3\xa9", b"no\xffutf8"):
        os.makedirs(os.path.join(os.fsencode(s.path()), name, b"m"))
        with open(os.path.join(os.fsencode(s.path()), name, b"m", b"m-Q4_0.gguf"), "w") as f:
            f.write("x")
    text = s.ntx("list")[0]
    check("\x1b" not in text and "a\\x1B]0;x\\x07b/m:Q4_0".lower() in text.lower(), text)
    check("caf\u00e9/m:Q4_0" in text and "utf8/m:Q4_0" in text, text)
    equal(len(json.loads(s.ntx("list", "--json")[0])), 3, "models of the list as JSON")


def store_behind_links(s, folder, model):
    """Own links, relative and absolute; circular ones; and another user's, when the caller is root."""
    begin(s, folder)
    real = os.path.join(folder, "real")
    os.makedirs(real, exist_ok=True)
    shutil.rmtree(os.path.join(s.data, "ntx"))
    os.symlink("../real/./x/../", os.path.join(s.data, "ntx"))
    os.makedirs(os.path.join(real, "x"))
    os.symlink(os.path.join(real, "x"), os.path.join(real, "models"))
    s.ntx("pull", "hf:some/Tiny")
    equal(read(os.path.join(real, "x/some/Tiny/Tiny-Q8_0.gguf")), model, "a model behind two links")
    s.ntx("rm", "some/Tiny")
    equal(listing(real), ["models", "x"], "what rm leaves")
    os.remove(os.path.join(real, "models"))
    os.symlink("models", os.path.join(real, "models"))
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("symbolic links" in err, err)
    os.remove(os.path.join(real, "models"))
    if os.geteuid():
        print("not root: links of another user are not tried")
        return
    os.symlink(os.path.join(real, "x"), os.path.join(real, "models"))
    os.lchown(os.path.join(real, "models"), NOBODY, NOBODY)
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("models is a symbolic link of another user (uid %d)" % NOBODY in err, err)
    equal(listing(real), ["models", "x"], "what a pull through another user's link leaves")


with tempfile.TemporaryDirectory(prefix="ntx-pull-") as d, Site(d) as site:
    tiny = read(make_model(os.path.join(d, "m.gguf"), "--layers", "2", "--embd", "64", "--ff", "128", "--heads", "2"))
    site.files = {"Tiny-Q8_0.gguf": tiny}
    folders_that_are_links(site, d)
    files_that_are_links(site, d, tiny)
    folders_of_any_name(site, d)
    store_behind_links(site, d, tiny)
