#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service with K and V in a file (--kv-ram).

Several clients at once get the texts that they get alone and in memory. A drive that fails is an error of the requests
at that time, and the next client with the same request gets the right text. No process dies of it.
"""

import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import wire  # noqa: E402
from daemons import Daemons, check, equal, make_model  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-kv-", dir=os.environ.get("TMPDIR", "/var/tmp"))
if subprocess.run(["stat", "-f", "-c", "%T", tmp.name], capture_output=True, text=True).stdout.strip() == "tmpfs":
    print("skipped: %s lies in memory" % tmp.name)
    sys.exit(77)
SHAPE = (
    "--layers",
    "20",
    "--embd",
    "64",
    "--ff",
    "64",
    "--heads",
    "1",
    "--kv",
    "1",
    "--head-dim",
    "64",
    "--type",
    "Q8_0",
    "--ctx",
    "4096",
    "--seed",
    "5",
)
model = make_model(os.path.join(tmp.name, "m.gguf"), *SHAPE)
place = os.path.join(tmp.name, "state")
KV_RAM, CLIENTS = 7 << 20, 4


def daemons(kv_ram):
    conf = os.path.join(tmp.name, "ntx.conf")
    with open(conf, "w") as f:
        f.write(
            "[prefix]\nstate = %s\nstate_max = 1K\nkv_ram = %d\n" % (place if kv_ram else "", kv_ram)
        )  # nobody saves a text, and finds the fault first
    return Daemons("--config", conf)


def loaded(d):
    c = d.client(300)
    c.load(model, ctx=2048, sessions=CLIENTS, max_rows=64, ram_bytes=256 << 20)
    return c


def ids(n, seed):
    return [3 + (seed * 7919 + i * i * 31 + i) % 250 for i in range(n)]


texts = [ids(900 + 150 * i, i) for i in range(CLIENTS)]
later = [ids(1900, 50), ids(1800, 51)]


def ask(c, tokens, n=24):
    return c.ask(tokens=tokens, ignore_eos=True, max_tokens=n, temp=0.0)


def the_file(pid):
    """The unnamed KV file, as a path by which its owner can truncate it."""

    def leads(fd):
        try:
            return os.readlink("/proc/%d/fd/%s" % (pid, fd))
        except FileNotFoundError:  # a client that has gone: it was closed since the listing
            return ""

    found = [
        fd for fd in os.listdir("/proc/%d/fd" % pid) if re.search(re.escape(place) + r"/.* \(deleted\)$", leads(fd))
    ]
    equal(len(found), 1, "unnamed files")
    return "/proc/%d/fd/%s" % (pid, found[0])


with daemons(0) as d:
    c = loaded(d)
    want = [ask(c, t).tokens for t in texts + later]
    on = ask(c, later[0] + want[CLIENTS], 40).tokens
    c.close()

with daemons(KV_RAM) as d:
    c = loaded(d)
    status = json.loads(c.status())
    check(status.get("kv_ram") == KV_RAM, "kv_ram: %s" % status.get("kv_ram"))
    with concurrent.futures.ThreadPoolExecutor(CLIENTS) as pool:
        clients = [d.client(300) for _ in texts]
        got = list(pool.map(lambda x: ask(*x).tokens, zip(clients, texts)))
    equal(got, want[:CLIENTS], "the texts of several at once")
    status = json.loads(c.status())
    check(status["kv_held_most"] <= KV_RAM, "held %d" % status["kv_held_most"])
    check(status["kv_read_bytes"] > 4 * KV_RAM, "read %d" % status["kv_read_bytes"])
    a = ask(c, later[0])
    equal(a.tokens, want[CLIENTS], "a text")
    pid = d.child["computed"].pid
    size = os.stat(the_file(pid)).st_size
    os.truncate(the_file(pid), 0)
    try:
        answer = ask(c, later[0] + a.tokens, 40)
        equal(
            answer.tokens,
            on,
            "what is said where reading ahead found the fault before it was asked, so that all was computed anew",
        )
    except wire.Refused as e:
        check(
            "cannot be read back from the drive of --state" in str(e) or "cannot be restored" in str(e),
            "the error: %s" % e,
        )
    os.truncate(the_file(pid), size)
    for i in (0, 1, 0):
        for _ in range(8):  # what cannot be had again is found out a piece at a time
            try:
                equal(ask(c, later[i]).tokens, want[CLIENTS + i], "text %d after the fault" % i)
                break
            except wire.Refused as e:
                print("refused:", e)
        else:
            check(False, "text %d is refused for ever" % i)
    equal(d.child["computed"].poll(), None, "computed lives")
    for x in clients:
        x.close()
    c.close()
