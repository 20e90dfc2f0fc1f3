#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Before a byte of a model is fetched: short names, the types with sizes and speeds, the menu, and the search."""

import json
import os
import pty
import re
import select
import shutil
import signal
import ssl
import subprocess
import tempfile
import threading
import time

from hub import NTX, Server, Handler, Site, check, equal, make_model

SIZES = ("--layers", "2", "--embd", "256", "--ff", "512", "--heads", "4")


def read(path):
    with open(path, "rb") as f:
        return f.read()


def make(folder, *options):
    return read(make_model(os.path.join(folder, "m.gguf"), *SIZES, *options))


def fetched(s):
    """Ranges of files that are no headers."""
    return [q for q in s.seen if q["path"].endswith(".gguf") and (q["range"] or "-").endswith("-")]


def rows(text):
    """The table: {type: (recommended, size, rate, remark)}"""
    found = re.findall(r"^([* ]) +\d+  (\S+) +([\d.]+ \w+|\?)  (.*?)(?:  +(.*))?$", text, re.M)
    return {label: (star == "*", size, rate, more) for star, label, size, rate, more in found}


def offer(s, folder):
    """A repository with three single files and one of two parts."""
    make_model(os.path.join(folder, "m.gguf"), *SIZES, "--type", "F16", "--split", "2")
    parts = {
        "BF16/Tiny-BF16-0000%d-of-00002.gguf" % i: read(os.path.join(folder, "m-0000%d-of-00002.gguf" % i))
        for i in (1, 2)
    }
    s.files = {
        "Tiny-Q8_0.gguf": make(folder, "--type", "Q8_0"),
        "Tiny-Q4_K_M.gguf": make(folder, "--type", "Q4_K"),
        "Tiny-UD-Q2_K_XL.gguf": make(folder, "--type", "Q2_K"),
        "mmproj-Tiny-F16.gguf": b"no model",
        "imatrix-Tiny.gguf": b"no model",
        "MTP/Tiny-MTP-Q8_0.gguf": b"a drafter",
        "mtp-Tiny-Q4_0.gguf": b"a drafter",
        **parts,
    }


def use_profile(s):
    """Speeds of a known machine, so that the recommendation does not depend on this one."""
    kept = os.path.join(s.env["XDG_CACHE_HOME"], "ntx", "profile.json")
    os.makedirs(os.path.dirname(kept))
    shutil.copy(os.path.join(os.environ["NTX_SOURCE"], "bench", "profiles", "desktop-ddr4.json"), kept)


def test_table(s):
    s.seen.clear()
    out, err = s.ntx("pull", "some/Tiny", code=100, stdin=subprocess.DEVNULL)
    table = rows(out)
    equal(list(table), ["UD-Q2_K_XL", "Q4_K_M", "Q8_0", "BF16"], "the types: " + out)
    whole = sum(len(b) for n, b in s.files.items() if n.startswith("BF16"))
    equal(table["BF16"][1], "%.1f MiB" % (whole / 2**20), "the sum of its parts")
    check("2 files" in table["BF16"][3] and all("tokens a second" in t[2] for t in table.values()), out)
    equal([t for t in table if table[t][0]], ["Q8_0"], "the best quality up to 8 bits at a good rate")
    check("recommended" in table["Q8_0"][3] and "from the header of UD-Q2_K_XL and the sizes" in out, out)
    check("nan" not in out and "inf" not in out, out)
    equal((fetched(s), s.kept()), ([], []), "what was fetched before the choice")
    command = re.search(r"say which type: ntx (pull \S+)$", err, re.M)
    check(command, err)
    s.ntx(*command[1].split())
    equal(s.kept(), ["some/Tiny/Tiny-Q8_0.gguf"], "what the command fetched")
    check("is here already" in rows(s.ntx("pull", "some/Tiny", code=100, stdin=subprocess.DEVNULL)[0])["Q8_0"][3])
    s.ntx("rm", "Tiny")
    return table


def test_types(s):
    for args in (("some/Tiny", "--type", "q4_k_m"), ("hf:some/Tiny:Q4_K_M",), ("some/Tiny:Q4_K_M", "--type", "Q4_K_M")):
        s.ntx("pull", *args)
        equal(s.kept(), ["some/Tiny/Tiny-Q4_K_M.gguf"], args)
        s.ntx("rm", "Tiny")
    s.ntx("pull", "some/Tiny", "--type", "best")
    equal(s.kept(), ["some/Tiny/Tiny-Q8_0.gguf"], "the recommended one")
    s.ntx("rm", "Tiny")
    for args, says in (
        (("some/Tiny:Q4_K_M", "--type", "Q8_0"), "name two types"),
        (("hf:some/Tiny:Q4_K_M", "--type", "Q8_0"), "name two types"),
        (("some/Tiny", "--type", "../x"), "no type"),
        (("some/Tiny", "--type", "Q3_K_M"), "no file is of this type; there are "),
        ((s.store + "/x.gguf", "--type", "Q8_0"), "an address names one file"),
    ):
        check(says in s.ntx("pull", *args, code=111)[1], args)


def test_whole_and_split(s):
    """A repository has the same model whole and in parts: one offer, the whole file."""
    parts = {n.replace("BF16/Tiny-BF16", "Tiny-Q4_K_M"): b for n, b in s.files.items() if n.startswith("BF16/")}
    before = dict(s.files)
    for order in (dict(before, **parts), dict(parts, **before)):
        s.files = order
        table = rows(s.ntx("pull", "some/Tiny", code=100, stdin=subprocess.DEVNULL)[0])
        equal(sorted(table), ["BF16", "Q4_K_M", "Q8_0", "UD-Q2_K_XL"], "the types")
        check("2 files" not in table["Q4_K_M"][3], table)
        s.ntx("pull", "some/Tiny:Q4_K_M")
        equal(s.kept(), ["some/Tiny/Tiny-Q4_K_M.gguf"], "what was fetched")
        s.ntx("rm", "Tiny")
    s.files = {n: b for n, b in before.items() if "mtp" in n.lower()}
    check("has no GGUF of a model" in s.ntx("pull", "some/Tiny", code=111)[1])
    s.files = before


def on_terminal(s, typed, *args):
    """(exit code, everything on the terminal)"""
    pid, fd = pty.fork()
    if not pid:
        os.execve(NTX, [NTX, *args], s.env)
    said, end, typed = b"", time.monotonic() + 120, list(typed)
    while time.monotonic() < end:
        ready, _, _ = select.select([fd], [], [], 0.2)
        if ready:
            try:
                more = os.read(fd, 65536)
            except OSError:
                break
            if not more:
                break
            said += more
        if typed and said.decode(errors="replace").rstrip().endswith(")?"):
            os.write(fd, typed.pop(0))
            said += b" "
            time.sleep(0.05)
    else:
        os.kill(pid, signal.SIGKILL)
    os.close(fd)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), said.decode(errors="replace").replace("\r\n", "\n")


def test_menu(s):
    for typed, code, kept in (
        ([b"\n"], 0, ["some/Tiny/Tiny-Q8_0.gguf"]),
        ([b"2\n"], 0, ["some/Tiny/Tiny-Q4_K_M.gguf"]),
        ([b"ud-q2_k_xl\n"], 0, ["some/Tiny/Tiny-UD-Q2_K_XL.gguf"]),
        (
            [b"0\n", b"99\n", b"-1\n", b"x\n", b"4\n"],
            0,
            ["some/Tiny/Tiny-BF16-0000%d-of-00002.gguf" % i for i in (1, 2)],
        ),
        ([b"q\n"], 100, []),
        ([b"\x04"], 100, []),
    ):
        got, out = on_terminal(s, typed, "pull", "some/Tiny")
        equal((got, s.kept()), (code, kept), out)
        check("Which one (1 to 4, Enter: 3, q: none)?" in out, out)
        equal(out.count("That is none of them."), max(len(typed) - 1, 0), out)
        if kept:
            s.ntx("rm", "Tiny")


def test_space(s):
    """No room on the drive: not recommended, and refused before a header is read."""
    huge = 1 << 55
    s.sizes["Tiny-Q8_0.gguf"] = s.totals["Tiny-Q8_0.gguf"] = huge
    table = rows(s.ntx("pull", "some/Tiny", code=100, stdin=subprocess.DEVNULL)[0])
    check("no room: " in table["Q8_0"][3] and not table["Q8_0"][0], table)
    s.seen.clear()
    _, err = s.ntx("pull", "some/Tiny:Q8_0", code=111)
    check("are to come" in err and "XDG_DATA_HOME" in err, err)
    equal([q["path"] for q in s.seen if q["path"].endswith(".gguf")], [], "files that were asked for")
    s.sizes.clear()
    s.totals.clear()


def test_not_run(s):
    """An architecture that ntx lacks; a header that is broken: the sizes alone."""
    was = dict(s.files)
    for n in s.files:
        s.files[n] = s.files[n].replace(b"\x05\0\0\0\0\0\0\0llama", b"\x05\0\0\0\0\0\0\0lxama", 1)
    _, err = s.ntx("pull", "some/Tiny", code=111, stdin=subprocess.DEVNULL)
    check("ntx does not run it" in err and "lxama" in err and "--anyway" in err, err)
    out, err = s.ntx("pull", "some/Tiny", "--anyway", code=100, stdin=subprocess.DEVNULL)
    check(all(t[2] == "?" for t in rows(out).values()) and "Speeds: not known" in out, out)
    check("no speed is known" in s.ntx("pull", "some/Tiny", "--anyway", "--type", "best", code=111)[1])
    s.files = dict(was, **{"Tiny-UD-Q2_K_XL.gguf": b"<html>" * 100})
    out, err = s.ntx("pull", "some/Tiny", code=100, stdin=subprocess.DEVNULL)
    check("from the sizes alone" in out and "tokens a second" in rows(out)["Q8_0"][2], out)
    s.files = was


def test_hostile(s):
    """Lists that lie: nothing but safe names, sizes without overflow, no controls on the terminal."""

    def file(path, size, **more):
        return dict(type="file", path=path, size=size, **more)

    s.list_body = json.dumps(
        [
            file("../../etc/Tiny-Q8_0.gguf", 5),
            file("a/../Tiny-Q6_K.gguf", 5),
            file("./Tiny-Q5_0.gguf", 5),
            file("x//Tiny-Q5_1.gguf", 5),
            file("/Tiny-Q5_K_M.gguf", 5),
            file("\x1b[2J/Tiny-Q2_K.gguf", 5),
            file("x\\Tiny-Q3_K.gguf", 5),
            file("Tiny\x1b[31m-Q3_K_S.gguf", 5),
            file("Tiny-Q4_0.gguf", 2**63 - 1),
            file("Tiny-Q4_1.gguf", -(2**63)),
            file("Tiny-IQ4_XS-00001-of-00002.gguf", 2**56),
            file("Tiny-IQ4_XS-00002-of-00002.gguf", 2**56),
            file("Tiny-F16.gguf", 1.5),
            {"type": "file", "path": ["x"], "size": {}},
            {"rfilename": 7},
            7,
            None,
        ]
    ).encode()
    out, err = s.ntx("pull", "some/Tiny", code=100, stdin=subprocess.DEVNULL)
    table = rows(out)
    equal({t: table[t][1] for t in table}, {"IQ4_XS": "65536.0 TiB", "F16": "?", "Q4_0": "?", "Q4_1": "?"}, out)
    check("\x1b" not in out + err, out, err)
    for body, says in (
        (b'[{"type": "file", "path": "Tiny-Q8_0.gg', "no JSON, or not all of it"),
        (b"[" * 100000, "no JSON, or not all of it"),
        (b'{"siblings": 7}', "not a list"),
        (b'[{"type":"file","type":"file"}]', "no JSON"),
        (b'[{"type":"file","path":"Tiny-Q8_0.gguf","size":99999999999999999999999}]', "no JSON"),
        (b"<html>maintenance</html>", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"7", "no JSON"),
        (b"[]", "has no GGUF of a model"),
        (b" " * (17 << 20), "longer than 16 MiB"),
    ):
        s.list_body = body
        _, err = s.ntx("pull", "some/Tiny", code=111, stdin=subprocess.DEVNULL)
        check(says in err and err.count("\n") == 1, body[:60], err)
    s.list_body = None
    equal(s.kept(), [], "what is kept")


def test_refusals(s, folder):
    """No network, no right, no such repository, too many requests, another host, TLS."""
    for status, says in (
        (401, "wants a token: set HF_TOKEN"),
        (403, "wants a token: set HF_TOKEN"),
        (404, "has no such file (404)"),
        (429, "too many requests from here (429): try again"),
        (500, "cannot answer now (500)"),
        (418, "status 418"),
    ):
        s.list_status = s.search_status = status
        for command in (("pull", "some/Tiny"), ("search", "tiny")):
            _, err = s.ntx(*command, code=111, stdin=subprocess.DEVNULL)
            check(says in err and err.count("\n") == 1, status, err)
        s.list_status = s.search_status = 200
    s.env["HF_TOKEN"] = "hf_abcdefghijkl"
    s.list_status = 403
    check("terms have to be accepted" in s.ntx("pull", "some/Tiny", code=111)[1])
    s.list_status = 200
    s.list_elsewhere = s.store + "/list.json"  # a list on another host: followed, without the token
    s.files["list.json"] = json.dumps(s.list()).encode()
    s.seen.clear()
    s.ntx("pull", "some/Tiny:Q4_K_M")
    equal({q["authorization"] for q in s.seen if q["host"] == "store"}, {None}, "the token at another host")
    s.ntx("rm", "Tiny")
    del s.files["list.json"], s.env["HF_TOKEN"]
    s.list_elsewhere = "file:///etc/passwd"
    check("no address of HTTP" in s.ntx("pull", "some/Tiny", code=111)[1])
    s.list_elsewhere = None
    for url, says in (("http://127.0.0.1:9", "is there a network?"), ("http://hub.invalid", "is there a network?")):
        s.env["NTX_HUB"] = url
        for command in (("pull", "some/Tiny"), ("search", "tiny")):
            _, err = s.ntx(*command, code=111, stdin=subprocess.DEVNULL)
            check(says in err and err.count("\n") == 1, url, err)
    test_tls(s, folder)
    s.env["NTX_HUB"] = s.url


def test_tls(s, folder):
    """A certificate that nobody vouches for."""
    pem = os.path.join(folder, "cert.pem")
    made = subprocess.run(
        [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "rsa:2048",
            "-nodes",
            "-days",
            "2",
            "-subj",
            "/CN=localhost",
            "-keyout",
            pem + ".key",
            "-out",
            pem,
        ],
        capture_output=True,
    )
    if made.returncode:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem, pem + ".key")
    server = Server(("127.0.0.1", 0), Handler)
    server.site, server.role = s, "hub"
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    s.env["NTX_HUB"] = "https://localhost:%d" % server.server_port
    _, err = s.ntx("pull", "some/Tiny", code=111)
    check("its certificate is not trusted" in err and err.count("\n") == 1, err)
    server.shutdown()
    server.server_close()


def test_short_names(s):
    out, _ = s.ntx("pull", "--list")
    names = dict(line.split()[:2] for line in out.splitlines())
    check(len(names) >= 40 and len(names) == len(out.splitlines()), out)
    for name, repo in names.items():
        check(re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) and re.fullmatch(r"[\w.-]+/[\w.-]+-GGUF", repo), name, repo)
    equal(len(set(names.values())), len(names), "different repositories")
    s.seen.clear()
    out, err = s.ntx("pull", "QWEN3-8b", code=100, stdin=subprocess.DEVNULL)
    check(
        "/api/models/%s/tree/main" % names["qwen3-8b"] in s.seen[0]["path"] and "say which type: ntx pull" in err, err
    )
    s.ntx("pull", "qwen3-8b:Q4_K_M")
    _, err = s.ntx("run", "qwen3-8b", "--raw", "-n", "2", "--quiet", "hello")
    s.ntx("rm", "qwen3-8b:Q4_K_M")
    equal(s.kept(), [], "what is left")
    for wrong, near in (
        ("qwen3-9b", "'qwen3-"),
        ("gptoss-20b", "did you mean 'gpt-oss-20b'"),
        ("lama3.1-8b", "'llama3.1-8b'"),
    ):
        _, err = s.ntx("pull", wrong, code=111)
        check("did you mean" in err and near in err and "ntx search " + wrong in err, err)
    check("did you mean" not in s.ntx("pull", "zzzzzzzzzzzz", code=111)[1])
    check("no NAME" in s.ntx("pull", code=100)[1])
    for command, *more in (("run", "a prompt"), ("serve",), ("inspect",)):
        _, err = s.ntx(command, "Qwen3-8B:Q8_0", *more, code=111)
        check("it is not here yet: `ntx pull Qwen3-8B:Q8_0` fetches it" in err, err)
        _, err = s.ntx(command, "gptoss-20b", *more, code=111)
        check("did you mean gpt-oss-20b? `ntx pull gpt-oss-20b` fetches it" in err, err)


def test_own_names(s):
    path = os.path.join(s.env["XDG_CONFIG_HOME"], "ntx", "models.ini")
    os.makedirs(os.path.dirname(path), exist_ok=True)

    def write(text):
        with open(path, "w") as f:
            f.write(text)

    write("[models]\nmine = some/Tiny\nqwen3-8b = hf:some/Tiny:Q8_0  ; another\nfile = %s/Tiny-Q4_K_M.gguf\n" % s.store)
    out, _ = s.ntx("pull", "--list")
    check(re.search(r"^mine +some/Tiny +\(yours\)$", out, re.M), out)
    s.ntx("pull", "mine:Q4_K_M")
    equal(s.kept(), ["some/Tiny/Tiny-Q4_K_M.gguf"], "a name of one's own")
    s.ntx("rm", "mine")
    s.ntx("pull", "qwen3-8b")
    equal(s.kept(), ["some/Tiny/Tiny-Q8_0.gguf"], "a name instead of the table's, with a type")
    s.ntx("rm", "Tiny")
    s.ntx("pull", "qwen3-8b:Q4_K_M")
    equal(s.kept(), ["some/Tiny/Tiny-Q4_K_M.gguf"], "another type")
    s.ntx("rm", "Tiny")
    s.ntx("pull", "file")
    equal(s.kept(), ["Tiny-Q4_K_M.gguf"], "an address")
    s.ntx("rm", "Tiny-Q4_K_M")
    for text, says in (
        ("[models]\nmine = nothing\n", "'mine = nothing'"),
        ("[models]\nmi/ne = some/Tiny\n", "'mi/ne = some/Tiny'"),
        ("[models]\nmine = ../x\n", "'mine = ../x'"),
        ("[other]\nmine = some/Tiny\n", "names stand below [models]"),
        ("[models]\nmine\n", "models.ini:2: neither"),
        ("[models]\n" + "".join("n%d = some/Tiny\n" % i for i in range(1001)), "more than 1000 names"),
    ):
        write(text)
        _, err = s.ntx("pull", "mine", code=111)
        check(says in err and "models.ini" in err, text[:50], err)
    os.remove(path)


def test_search(s):
    def info(arch, *sizes, **more):
        files = [{"rfilename": "M-Q%d_0.gguf" % i, "size": n} for i, n in enumerate(sizes)]
        return dict(gguf={"total": 4000000000, "architecture": arch}, gated=False, siblings=files, **more)

    s.repos = {
        "small/Tiny-Qwen-GGUF": {"downloads": 15, "info": info("qwen3", 3 << 30, 5 << 30)},
        "big/Huge-Qwen-GGUF": {"downloads": 2500000, "info": info("rwkv9\x1b[31m", 3 << 30)},
        "gated/Qwen-GGUF": {"downloads": 1500, "info": dict(info("llama", 1 << 20), gated="manual")},
        "none/Qwen-Images": {"downloads": 7, "info": {"siblings": [{"rfilename": "mmproj-x.gguf", "size": 5}]}},
        "../Qwen": {"downloads": 10**9, "info": {}},
        "bad\x1b/Qwen": {"downloads": 10**9, "info": {}},
    }
    out, err = s.ntx("search", "qwen")
    lines = out.splitlines()
    for line, words in zip(
        lines,
        (
            ("big/Huge-Qwen-GGUF", " 2.5M ", " 3.0 GiB ", "ntx does not run it: architecture rwkv9\\x1b[31m"),
            ("gated/Qwen-GGUF", " 2k ", "ntx runs it (llama); its terms must be accepted first"),
            ("small/Tiny-Qwen-GGUF", " 15 ", " 3.0 GiB to 5.0 GiB, 2 types ", "ntx runs it (qwen3)"),
            ("none/Qwen-Images", " 7 ", "no GGUF of a model"),
            ("short names: ", "qwen3-8b"),
        ),
    ):
        check(all(w in line for w in words), line, words)
    check(len(lines) == 5 and "\x1b" not in out + err and "ntx pull NAME" in err, out, err)
    asked = s.searched[-1]
    equal((asked["filter"], asked["sort"], asked["limit"]), (["gguf"], ["downloads"], ["10"]), "the request")
    found = json.loads(s.ntx("search", "TINY", "qwen", "--json")[0])
    equal(s.searched[-1]["search"], ["TINY qwen"], "the words")
    equal(found, [], "results")
    one = json.loads(s.ntx("search", "tiny-", "--json", "--limit", "1")[0])[0]
    equal(
        (one["name"], one["runs"], one["types"], one["bytes_most"]), ("small/Tiny-Qwen-GGUF", True, 2, 5 << 30), "JSON"
    )
    check("nothing on the hub" in s.ntx("search", "zzz")[1])
    s.repos["small/Tiny-Qwen-GGUF"]["info"] = 429  # in the middle: what is known is shown
    out, err = s.ntx("search", "qwen")
    check("not all is known: " in err and "(429)" in err and "ntx runs it (llama)" in out, out, err)
    for body in (b"{", b"{}", b'[{"id": 7}, 7, null, {"id": "%s/x"}]' % (b"a" * 500)):
        s.search_body = body
        s.ntx("search", "qwen", code=0 if body[:2] == b"[{" else 111)
    s.search_body = None
    for args in ((), ("",), ("x" * 500,), ("x", "--limit", "0"), ("x", "--limit", "51")):
        s.ntx("search", *args, code=111 if args in (("",), ("x" * 500,)) else 100)


with tempfile.TemporaryDirectory(prefix="ntx-pull-") as d, Site(d) as site:
    offer(site, d)
    use_profile(site)
    test_table(site)
    test_types(site)
    test_whole_and_split(site)
    test_menu(site)
    test_space(site)
    test_not_run(site)
    test_hostile(site)
    test_refusals(site, d)
    test_short_names(site)
    test_own_names(site)
    test_search(site)
