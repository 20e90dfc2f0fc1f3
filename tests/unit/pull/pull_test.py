#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models by name: the files of a hub name or a URL, their place in the store, and the meaning of names afterwards."""

import json
import os
import re
import subprocess
import tempfile

from hub import NTX, Site, check, equal, make_model


def read(path):
    with open(path, "rb") as f:
        return f.read()


def make(folder, *options):
    path = os.path.join(folder, "m.gguf")
    make_model(path, "--layers", "2", "--embd", "64", "--ff", "128", "--heads", "2", *options)
    return read(path)


def test_types(s, model, other):
    s.files = {
        "Tiny-Q8_0.gguf": model,
        "Tiny-Q4_K_M.gguf": other,
        "Tiny-UD-Q4_K_M.gguf": model,
        "mmproj-Tiny-F16.gguf": model,
        "README.md": b"#",
    }
    _, err = s.ntx("pull", "hf:some/Tiny-GGUF:Q4_K_M")
    check("ntx run some/Tiny-GGUF:Q4_K_M" in err and "mmproj-Tiny-F16.gguf comes with it" in err, err)
    projector = "some/Tiny-GGUF/mmproj-Tiny-F16.gguf"
    equal(s.kept(), ["some/Tiny-GGUF/Tiny-Q4_K_M.gguf", projector], "what is kept")
    os.remove(s.path(projector))
    s.ntx("pull", "hf:some/Tiny-GGUF:Q4_K_M", "--no-mmproj")
    equal(s.kept(), ["some/Tiny-GGUF/Tiny-Q4_K_M.gguf"], "without the projector")
    equal(read(s.path("some/Tiny-GGUF/Tiny-Q4_K_M.gguf")), other, "its bytes")
    s.ntx("pull", "some/Tiny-GGUF:q8_0", "--quiet")
    equal(read(s.path("some/Tiny-GGUF/Tiny-Q8_0.gguf")), model, "the other one's")
    _, err = s.ntx("pull", "hf:some/Tiny-GGUF:Q2_K", code=111)
    check("no file is of this type" in err and "Q8_0 (" in err and "UD-Q4_K_M (" in err and "mmproj" not in err, err)
    before = len(s.seen)
    s.ntx("pull", "hf:some/Tiny-GGUF:Q8_0")
    check(
        all(q["range"] and not q["range"].endswith("-") for q in s.seen[before + 1 :]),
        "what is there is not pulled again:",
        s.seen[before:],
    )
    for name in ("hf:some", "hf:../x", "hf:a/b/c", "hf:a/..", "hf:a/b:", "hf:a/b:../c", "hf:-a/b", "hf:a b/c"):
        _, err = s.ntx("pull", name, code=111)
        check("names no model of the hub" in err, name, err)


def test_names(s):
    out, _ = s.ntx("list")
    check(re.search(r"^some/Tiny-GGUF:Q4_K_M +\S+ \w+ +\d{4}-\d\d-\d\d$", out, re.M), out)
    listed = json.loads(s.ntx("list", "--json")[0])
    equal(
        [(m["name"], m["whole"], m["files"]) for m in listed],
        [("some/Tiny-GGUF:Q4_K_M", True, 1), ("some/Tiny-GGUF:Q8_0", True, 1)],
        "the list",
    )
    equal(listed[1]["path"], s.path("some/Tiny-GGUF/Tiny-Q8_0.gguf"), "its path")
    same = s.ntx("inspect", s.path("some/Tiny-GGUF/Tiny-Q8_0.gguf"), "--json")[0]
    check(s.ntx("inspect", "Tiny-Q4_K_M", "--json")[0] != same, "both files look alike")
    for name in ("some/Tiny-GGUF:Q8_0", "hf:some/tiny-gguf:q8_0", "Tiny-GGUF:Q8_0", "Tiny-Q8_0", "tiny-q8_0.gguf"):
        equal(s.ntx("inspect", name, "--json")[0], same, name)
    _, err = s.ntx("inspect", "Tiny-GGUF", code=111)
    check("means 2 models: some/Tiny-GGUF:Q4_K_M, some/Tiny-GGUF:Q8_0" in err, err)
    _, err = s.ntx("inspect", "nothing", code=111)
    check("nothing: No such file" in err and "ntx list" in err, err)


def test_run(s):
    text, _ = s.ntx("run", "Tiny-GGUF:Q8_0", "--raw", "-n", "5", "--quiet", "hello")
    same, _ = s.ntx("run", s.path("some/Tiny-GGUF/Tiny-Q8_0.gguf"), "--raw", "-n", "5", "--quiet", "hello")
    equal(text, same, "the text by name and by path")
    os.makedirs(os.path.join(s.env["XDG_CONFIG_HOME"], "ntx"))
    conf = os.path.join(s.env["XDG_CONFIG_HOME"], "ntx", "ntx.conf")
    with open(conf, "w") as f:
        f.write("[model]\npath = Tiny-GGUF:Q8_0\nthreads = 1\n[options]\nraw = yes\nn = 5\n")
    equal(s.ntx("run", "--quiet", "-p", "hello")[0], text, "the text of the default model with default options")
    stats = json.loads(s.ntx("run", "--quiet", "-p", "hello", "-n", "3", "--stats", "-")[0].split("\n", 1)[-1])
    equal((stats["generated_tokens"], stats["threads"]), (3, 1), "the command line's word over the file's")
    with open(conf, "w") as f:
        f.write("[options]\ntepm = 1\n")
    p = subprocess.run([NTX, "run", "x"], env=s.env, capture_output=True, text=True)
    check(p.returncode == 100 and "[options] tepm: no such key" in p.stderr, p)
    with open(conf, "w") as f:
        f.write("[model]\nctx = nonsense\n")
    p = subprocess.run([NTX, "run", "x"], env=s.env, capture_output=True, text=True)
    check(p.returncode == 100 and "[model] ctx:" in p.stderr, p)
    os.remove(conf)


def test_rm(s):
    s.ntx("rm", "Tiny-GGUF", code=111)
    s.ntx("rm", "Tiny-GGUF:Q4_K_M")
    left = ["some/Tiny-GGUF/Tiny-Q8_0.gguf", "some/Tiny-GGUF/mmproj-Tiny-F16.gguf"]
    equal(s.kept(), left, "what is left: the projector serves the other one")
    s.ntx("rm", "Tiny-GGUF")
    check(not os.path.exists(s.path("some")), "empty folders are left")
    _, err = s.ntx("rm", "Tiny-GGUF", code=111)
    check("no model of `ntx list`" in err, err)
    equal(s.ntx("list")[0], "", "the list of nothing")


def test_split(s, folder):
    make(folder, "--split", "3")
    parts = {
        "Q4_0/Big-Q4_0-0000%d-of-00003.gguf" % i: read(os.path.join(folder, "m-0000%d-of-00003.gguf" % i))
        for i in (1, 2, 3)
    }
    s.files = parts
    s.ntx("pull", "hf:some/Big")
    equal(s.kept(), ["some/Big/" + os.path.basename(n) for n in sorted(parts)], "its parts")
    equal(json.loads(s.ntx("list", "--json")[0])[0]["name"], "some/Big:Q4_0", "its name")
    s.ntx("run", "Big", "--raw", "-n", "2", "--quiet", "x")
    os.rename(s.path("some/Big/Big-Q4_0-00002-of-00003.gguf"), s.path("some/Big/.Big-Q4_0-00002-of-00003.gguf.part"))
    check("not whole: 2 of 3 files" in s.ntx("list")[0], s.ntx("list"))
    _, err = s.ntx("run", "Big", "x", code=111)
    check("is not whole: ntx pull goes on" in err, err)
    s.ntx("rm", "Big")
    equal(s.kept(), [], "all parts are gone")
    s.files = {n: b for n, b in parts.items() if "00002" not in n}
    _, err = s.ntx("pull", "hf:some/Big", code=111)
    check("lacks part 2 of 3" in err, err)
    s.files = {os.path.basename(n): b for n, b in parts.items()}
    _, err = s.ntx("pull", s.store + "/Big-Q4_0-00002-of-00003.gguf", code=111)
    check("the address of the first part" in err, err)
    _, err = s.ntx("pull", s.store + "/Big-Q4_0-00001-of-00003%2Egguf", code=111)
    check("percent-encoded" in err, err)
    s.ntx("pull", s.store + "/Big-Q4_0-00001-of-00003.gguf?x=1")
    equal(s.kept(), sorted(s.files), "parts by an address")
    os.remove(s.path("Big-Q4_0-00001-of-00003.gguf"))
    s.ntx("rm", "", code=111)
    equal(len(s.kept()), 2, "what an empty name leaves")
    for i in (1, 2, 3):
        with open(s.path("Big-Q4_0-0000%d-of-00003.GGUF" % i), "wb") as f:
            f.write(parts["Q4_0/Big-Q4_0-0000%d-of-00003.gguf" % i])
    for i in (2, 3):
        os.remove(s.path("Big-Q4_0-0000%d-of-00003.gguf" % i))
    s.ntx("rm", "Big-Q4_0")
    equal(s.kept(), [], "parts that end in .GGUF are gone")


def test_token(s, model, folder):
    s.files, s.token = {"Tiny-Q8_0.gguf": model}, "hf_abcdefghijkl"
    _, err = s.ntx("pull", "hf:some/Tiny", code=111)
    check("wants a token" in err, err)
    s.seen.clear()
    s.env["HF_TOKEN"] = s.token
    out, err = s.ntx("pull", "hf:some/Tiny", "--verbose")
    check(s.token not in out + err and "very-secret" not in out + err, "a secret is told:", out, err)
    equal({q["authorization"] for q in s.seen if q["host"] == "hub"}, {"Bearer " + s.token}, "the hub's token")
    equal({q["authorization"] for q in s.seen if q["host"] == "store"}, {None}, "another host's")
    del s.env["HF_TOKEN"]
    s.ntx("rm", "Tiny")
    secret = os.path.join(folder, "secret")
    with open(secret, "w") as f:
        f.write(s.token + "\n")
    os.chmod(secret, 0o644)
    check("chmod 600" in s.ntx("pull", "hf:some/Tiny", "--token-file", secret, code=111)[1])
    os.chmod(secret, 0o600)
    s.ntx("pull", "hf:some/Tiny", "--token-file", secret)
    s.ntx("rm", "Tiny")
    s.env.update(HF_TOKEN="bad token")
    check("HF_TOKEN is no token" in s.ntx("pull", "hf:some/Tiny", code=111)[1])
    s.env.update(HF_TOKEN=s.token, NTX_HUB="http://hub.invalid")
    check("is not sent over HTTP" in s.ntx("pull", "hf:some/Tiny", code=111)[1])
    s.env.update(NTX_HUB="http://127.0.0.1.hub.invalid")
    check("is not sent over HTTP" in s.ntx("pull", "hf:some/Tiny", code=111)[1])
    s.env.update(NTX_HUB=s.url)
    del s.env["HF_TOKEN"]
    s.token = None


def test_judged(s, model):
    """The report before a download of 100 GB."""
    other = model.replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lxama", 1)
    check(other != model, "the architecture was not found in the model")
    s.files = {"Odd-Q8_0.gguf": other}
    s.seen.clear()
    _, err = s.ntx("pull", "hf:some/Odd", code=111)
    check("ntx does not run it" in err and "lxama" in err and "--anyway" in err, err)
    check(
        all(q["range"] == "bytes=0-1048575" for q in s.seen if q["host"] == "store"),
        "more than its header was read:",
        s.seen,
    )
    equal(s.kept(), [], "what is kept of it")
    s.ntx("pull", "hf:some/Odd", "--anyway")
    s.ntx("rm", "Odd")
    os.makedirs(
        os.path.join(s.env["XDG_CACHE_HOME"], "ntx"), exist_ok=True
    )  # a pull before this one measured for a moment
    profiles = os.path.join(os.environ["NTX_SOURCE"], "bench", "profiles")
    name = sorted(n for n in os.listdir(profiles) if n.endswith(".json"))[0]
    with open(os.path.join(s.env["XDG_CACHE_HOME"], "ntx", "profile.json"), "wb") as f:
        f.write(read(os.path.join(profiles, name)))
    s.files = {"Tiny-Q8_0.gguf": model}
    out, _ = s.ntx("pull", "hf:some/Tiny")
    check(out.startswith("Fits in ") and "Writing: " in out, out)
    s.ntx("rm", "Tiny")


def test_loaded():
    """Commands that pull nothing do not load libcurl and its libraries."""
    out = subprocess.run(["ldd", NTX], capture_output=True, text=True, check=True).stdout
    check("libc.so" in out and "libcurl" not in out, out)


with tempfile.TemporaryDirectory(prefix="ntx-pull-") as d, Site(d) as site:
    tiny = make(d)
    test_types(site, tiny, make(d, "--seed", "9", "--layers", "3"))
    test_names(site)
    test_run(site)
    test_rm(site)
    test_split(site, d)
    test_token(site, tiny, d)
    test_judged(site, tiny)
    test_loaded()
