#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Daemons of different builds: one clear error at once, with both builds in it, and no endless retries."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, Daemons, check, equal, make_model, patience, refused, wait_for  # noqa: E402

SOON = (
    5.0 * patience() * float(os.environ.get("NTX_TEST_SLOW", "1"))
)  # the patience with a worker that does not come is 10 s
tmp = tempfile.TemporaryDirectory(prefix="ntx-build-")
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
    "--layers",
    "4",
    "--embd",
    "512",
    "--ff",
    "1536",
    "--heads",
    "8",
    "--kv",
    "2",
    "--type",
    "Q8_0",
    "--seed",
    "5",
)
build = subprocess.run(
    [os.path.join(BIN, "ntx-iod"), "--version"], capture_output=True, text=True, check=True
).stdout.split()[1]
other = ("9" + build[1:])[: len(build)]


def programs(*changed):
    """A folder with all programs, those in `changed` with another build id."""
    folder = tempfile.mkdtemp(dir=tmp.name)
    for name in ("ntx", "ntx-computed", "ntx-iod", "ntx-predictor"):
        shutil.copy(os.path.join(BIN, name), folder)
        if name in changed:
            path = os.path.join(folder, name)
            with open(path, "rb") as f:
                code = f.read()
            check(build.encode() in code, name, "does not hold its build")
            with open(path, "wb") as f:
                f.write(
                    code.replace(build[:8].encode(), other[:8].encode())
                )  # compilers put short strings into instructions
    return folder


def captive(changed):
    folder = programs(changed)
    begin = time.monotonic()
    p = subprocess.run(
        [folder + "/ntx", "run", model, "x", "--raw", "-n", "2", "--ram", "64M", "--quiet"],
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
        env=dict(os.environ, TMPDIR=tmp.name, XDG_RUNTIME_DIR=""),
    )
    took = time.monotonic() - begin
    equal((p.returncode, p.stdout), (111, ""), changed + ": exit code, stdout")
    equal(p.stderr.count("\n"), 1, "lines of: " + p.stderr)
    check(
        re.search(
            "ntx: %s (was refused|is not fit).*%s.*%s.*one build" % (changed, re.escape(other), re.escape(build)),
            p.stderr,
        ),
        p.stderr,
    )
    check(took < SOON, changed, "took", took, "s")
    equal([d for d in os.listdir(tmp.name) if d.startswith("ntx-run")], [], "left behind")


def up(*arguments):
    folder = programs("ntx-iod")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ntx-up-") as runtime:
        p = subprocess.run(
            [folder + "/ntx", "up", *arguments],
            capture_output=True,
            text=True,
            timeout=100,
            env=dict(os.environ, NTX_RUNTIME=runtime),
        )
    equal(p.returncode, 111, "exit code of up")
    check(time.monotonic() - begin < 1.5 * SOON, "up took", time.monotonic() - begin)
    lines = p.stderr.splitlines()
    check(len(lines) <= 8, "the log is filled:", p.stderr)
    check(re.search("ntx: ntx-iod .*", lines[-1]), "last line", lines[-1])
    check(other in p.stderr and build in p.stderr, p.stderr)


# Comes in as ntx-iod of the right build (proto/attach.h), says so on stdout, and never says Hello on its link.
MUTE_IOD = """
import os, socket, struct, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(sys.argv[1] + "/region.sock")
numbers = [0x4e545841, 5, 1, 1, os.getpid()] + [0] * 11
s.send(struct.pack("<4IiIQ5Ii2IQ64s256s", *numbers, sys.argv[2].encode(), b""))
kind = struct.unpack_from("<I", s.recv(4096), 8)[0]
print(kind, flush=True)
sys.stdin.read()
"""


def between_attach_and_hello(d, c):
    """A request that comes when an ntx-iod of the right build has attached, but has not sent Hello, waits for it.

    The error about the refused ntx-iod before it no longer holds.
    """
    with subprocess.Popen(
        [sys.executable, "-c", MUTE_IOD, d.dir, build], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as mute:
        equal(mute.stdout.readline(), "2\n", "the kind of the answer to its HELLO (2: WELCOME)")
        request = c.generate("A", ignore_eos=True, max_tokens=2)
        check("started" in c.next(request), "the request was not begun")
        mute.stdin.close()
    d.spawn("iod")
    equal(len(c.answer(request).tokens), 2, "tokens of the request that waited")


def service():
    """As under systemd: the worker's exit code says that a restart is no use; computed stays and reports why."""
    folder = programs("ntx-iod")
    with Daemons(restart=False) as d:
        c = d.client()
        c.load(model, ctx=64)
        equal(len(c.ask("A", ignore_eos=True, max_tokens=2).tokens), 2, "tokens")
        c.load(model, ctx=64, ram_bytes=9 << 20)
        equal(json.loads(c.status())["iod_pid"], d.child["iod"].pid, "iod_pid")
        d.kill("iod")
        wait_for(lambda: json.loads(c.status())["iod_pid"] == 0, 5, "iod_pid 0")
        p = subprocess.run(
            [folder + "/ntx-iod", "--runtime", d.dir], stderr=subprocess.PIPE, text=True, timeout=10 * patience()
        )
        equal(p.returncode, 112, "the refused one's exit code")
        check(other in p.stderr and build in p.stderr, p.stderr)
        begin = time.monotonic()
        refused(
            lambda: c.ask("A", ignore_eos=True, max_tokens=2),
            "ntx-iod was refused.*%s" % re.escape(other),
            "a request without ntx-iod",
        )
        check(time.monotonic() - begin < SOON, "the refusal took", time.monotonic() - begin)
        between_attach_and_hello(d, c)
        wait_for(
            lambda: d.text().count("refused a worker") == 1 and '"iod":true' in c.status().replace(" ", ""),
            10,
            "the right ntx-iod",
        )
        equal(json.loads(c.status())["iod_pid"], d.child["iod"].pid, "iod_pid of the next one")
        equal(len(c.ask("A", ignore_eos=True, max_tokens=2).tokens), 2, "tokens with the right one")
        c.close()


captive("ntx-iod")
captive("ntx-predictor")
up()
up(model)
service()
