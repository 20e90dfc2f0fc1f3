#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ntx-computed's client socket.

Garbage, limits, descriptors, loading and unloading again and again, a file that changes, a client that does not read,
the end.
"""

import json
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import wire  # noqa: E402
from daemons import BIN, Daemons, check, descriptors, equal, fail, make_model, patience, refused, wait_for  # noqa: E402

SLOW = float(os.environ.get("NTX_TEST_SLOW", "1"))
tmp = tempfile.TemporaryDirectory(prefix="ntx-server-model-")
SHAPE = ("--layers", "4", "--embd", "256", "--ff", "768", "--heads", "8", "--kv", "2", "--type", "Q8_0")
model = make_model(os.path.join(tmp.name, "m.gguf"), *SHAPE, "--seed", "2")
LOAD = {"ram_bytes": 12 << 20, "ctx": 128, "sessions": 2}


def gone(client, what):
    try:
        client.reply()
    except wire.Gone:
        return
    fail("%s: the connection was not closed" % what)


def garbage(d):
    rng = random.Random(7)
    for data in (
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        struct.pack("<I", 5) + b"abcde",
        wire.frame({"id": 1}),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<I", 200) + rng.randbytes(200),
    ):
        c = d.client()
        before = len(d.text().splitlines())
        c.sock.sendall(data)
        if data.startswith(b"GET"):  # a length that is possible: the frame never comes
            c.sock.shutdown(socket.SHUT_WR)
        gone(c, repr(data[:20]))
        check(len(d.text().splitlines()) <= before + 1, "more than one line for", repr(data[:20]))
    # A frame may come in many pieces.
    c = d.client()
    for b in wire.frame({"id": 9, "status": {}}):
        c.sock.sendall(bytes([b]))
    check(json.loads(c.next(9)["status"]["json"])["state"] == "ready", "status in pieces")
    c.close()


def limits(d):
    clients = [d.client() for _ in range(40)]
    lucky = 0
    for c in clients:
        try:
            c.ask("x", max_tokens=1)
            lucky += 1
        except wire.Refused as e:
            check("too many clients" in str(e), e)
        except (wire.Gone, BrokenPipeError):
            pass  # refused, and closed before the question came
    equal(lucky, 31, "clients beside the one that is there")
    for c in clients:
        c.close()
    c = wait_for(lambda: fresh(d), 5, "room for clients again")
    ids = [c.generate("x", max_tokens=2, ignore_eos=True) for _ in range(30)]
    answers = errors = 0
    for i in ids:
        try:
            c.answer(i)
            answers += 1
        except wire.Refused as e:
            check("too many requests" in str(e), e)
            errors += 1
    check(answers >= 16 and answers + errors == 30, answers, "answers,", errors, "refusals")
    c.close()


def fresh(d):
    c = d.client()
    try:
        c.status()
        return c
    except (wire.Refused, wire.Gone, BrokenPipeError):
        return None


def loading(d, c, want):
    refused(lambda: c.load("/dev/null", **LOAD), "not a regular file", "a device")
    request = c.send("load", {"names": ["x"]})
    refused(lambda: c.next(request), "neither a path nor descriptors", "no descriptors")
    fd = os.open(model, os.O_WRONLY)
    request = c.send("load", dict(LOAD, names=["m"]), [fd])
    os.close(fd)
    refused(lambda: c.next(request), "not open for reading", "a descriptor to write")
    with open(os.path.join(tmp.name, "text"), "w") as f:
        f.write("no model\n" * 100)
    refused(lambda: c.load(f.name, **LOAD), "text.*(GGUF|magic)", "a text")
    refused(lambda: c.load(model, **dict(LOAD, ram_bytes=1 << 20)), "at least|smallest", "a budget too small")
    refused(lambda: c.load(model, **LOAD, kernel="mmx"), "mmx.*generic", "an unknown kernel")
    refused(lambda: c.load(model, **LOAD, skip="script:99"), "99", "a layer that is not there")
    refused(lambda: c.load(model, **LOAD, fault="cosmic rays"), "iod:|fault", "an unknown fault")
    # After all this the former model still works, or was unloaded in order; the next load works.
    c.load(model, **LOAD)
    equal(c.ask("Once", max_tokens=9, ignore_eos=True).tokens, want, "after refused loads")
    # The model stays while an answer is generated, which takes a while here.
    c.load(model, **dict(LOAD, ctx=4096, ram_bytes=24 << 20))
    other = d.client()
    request = other.generate("Once", max_tokens=0, ignore_eos=True)
    other.until(request, "token")
    refused(lambda: c.load(model, **LOAD), "being generated", "a load over a running answer")
    refused(lambda: c.until(c.send("unload"), "done"), "being generated", "an unload under a running answer")
    other.close()
    wait_for(lambda: json.loads(c.status())["sessions"] == 0, 10, "the end of a session whose client went away")


def cycles(d, c, want):
    """Loads, unloads and replaces models; requests sent meanwhile wait for the model. Nothing leaks."""
    pid = d.child["computed"].pid

    def held():
        with open("/proc/%d/smaps_rollup" % pid) as f:
            pss = next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
        return descriptors(pid), pss

    for i in range(12):
        fd = os.open(model, os.O_RDONLY)
        load = c.send("load", dict(LOAD, names=["m"]), [fd])
        os.close(fd)
        request = c.generate("Once", max_tokens=9, ignore_eos=True)
        c.until(load, "loaded")
        equal(c.answer(request).tokens, want, "answer after load %d" % i)
        if i % 3 == 2:
            c.until(c.send("unload"), "done")
            refused(lambda: c.ask("Once"), "no model is loaded", "an answer without a model")
            now = held()
            if i == 2:
                first = now
    check(now[0] <= first[0], "descriptors:", first[0], "after one unload,", now[0], "after four")
    check(now[1] <= first[1] + 32768, "memory:", first[1], "kB after one unload,", now[1], "after four")
    c.load(model, **LOAD)


def changed_file(c, want):
    """A model whose file is written to while it is loaded is not used any more."""
    path = os.path.join(tmp.name, "changing.gguf")
    subprocess.run(["cp", model, path], check=True)
    c.load(path, **LOAD)
    os.unlink(path)  # a name less changes nothing
    equal(c.ask("Once", max_tokens=9, ignore_eos=True).tokens, want, "after the file's name went away")
    subprocess.run(["cp", model, path], check=True)
    c.load(path, **LOAD)
    with open(path, "r+b") as f:
        f.seek(-100, 2)
        f.write(b"\1" * 50)
    refused(lambda: c.ask("Once", max_tokens=9), "changing.gguf.*changed", "an answer from a changed file")
    c.load(model, **LOAD)
    equal(c.ask("Once", max_tokens=9, ignore_eos=True).tokens, want, "after loading anew")


def slow_reader(d, c):
    """A client that does not read its logits is paused; others go on.

    It gets all logits in the end, and the daemon keeps few of them meanwhile.
    """
    wide = make_model(
        os.path.join(tmp.name, "wide.gguf"),
        "--layers",
        "2",
        "--embd",
        "256",
        "--ff",
        "768",
        "--heads",
        "8",
        "--kv",
        "2",
        "--type",
        "Q8_0",
        "--vocab-size",
        "20000",
    )
    c.load(wide, ram_bytes=24 << 20, ctx=128, sessions=3)
    want = c.ask("Once", max_tokens=9, ignore_eos=True).tokens
    slow = d.client()
    ids = [1] + [300 + i for i in range(126)]
    requests = [slow.send("logits", {"tokens": ids}) for _ in range(2)]  # 2 x 10 MB
    wait_for(lambda: json.loads(c.status())["prompt_tokens"] > 0, 5, "the logits' begin")
    for _ in range(4):
        equal(c.ask("Once", max_tokens=9, ignore_eos=True).tokens, want, "beside a slow reader")
    check(json.loads(c.status())["sessions"] >= 1, "all logits were computed though nobody reads them")
    for r in requests:
        rows = 0
        while "done" not in (reply := slow.next(r)):
            rows += "logits" in reply
            check("logits" not in reply or len(reply["logits"]["f32"]) == 80000, "a row's size")
        equal(rows, len(ids), "rows of a slow reader")
    # With steps there is a reply for each row, also those before the first whose logits are requested.
    shown = slow.send("logits", {"tokens": ids, "from": len(ids) - 1, "steps": 2})
    for _ in range(4):
        equal(c.ask("Once", max_tokens=9, ignore_eos=True).tokens, want, "beside a slow reader of steps")
    check(json.loads(c.status())["sessions"] >= 1, "all steps were shown though nobody reads them")
    while "done" not in slow.next(shown):
        pass
    slow.close()


def versions(d):
    """A worker of another build is refused with a message."""
    s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    s.settimeout(5 * patience())
    s.connect(os.path.join(d.dir, "region.sock"))
    # struct ntx_attach_msg: magic, version, HELLO, iod, pid, numbers that do not matter, build at 72, text
    hello = struct.pack("<IIIIi", 0x4E545841, 5, 1, 1, os.getpid()).ljust(72, b"\0") + b"0.0.0+another".ljust(
        64 + 256, b"\0"
    )
    s.send(hello)
    reply = s.recv(4096)
    s.close()
    check(
        reply and b"0.0.0+another" in reply and struct.unpack_from("<I", reply, 8)[0] == 3,
        "refusal of another build:",
        reply,
    )


def second_daemon(d):
    p = subprocess.run(
        [os.path.join(BIN, "ntx-computed"), "--runtime", d.dir], capture_output=True, text=True, timeout=20 * patience()
    )
    equal(p.returncode, 111, "exit code of a second daemon")
    check("another ntx-computed" in p.stderr, p.stderr)


def graceful(signal_it):
    """A stop lets answers finish within the grace period, refuses new ones, then ends what still runs."""
    with Daemons(restart=False) as d:
        c, k = d.client(), d.client()
        tight = dict(LOAD, ram_bytes=4 << 20)
        streamed = json.loads(c.load(model, **tight)["info_json"])["bytes_storage"]
        check(streamed > 1 << 20, "only", streamed, "bytes are streamed")
        c.load(model, **tight, link_nvme_bps=streamed / 0.05)  # 0.05 s for a pass: what is endless lasts for 6 s
        short = c.generate("Once", max_tokens=5, ignore_eos=True)
        endless = k.generate("Once", max_tokens=0, ignore_eos=True)
        c.until(short, "started")
        k.until(endless, "token")
        began = time.monotonic()
        if signal_it:
            d.child["computed"].send_signal(signal.SIGTERM)
        else:
            stop = c.send("stop", {"grace_ms": int(3000 * SLOW)})
        wait_for(lambda: not os.path.exists(d.socket()), 5, "the socket's end")
        late = c.generate("Once", max_tokens=5)
        equal(c.answer(short).finish, "length", "a short answer under way")
        refused(lambda: c.answer(late), "shutting down", "a request while it ends")
        a = k.answer(endless)
        check(a.finish == "cancel" or len(a.tokens) > 100, "the endless answer ended by", a.finish)
        if not signal_it:
            c.until(stop, "done")
        gone(k, "the end")
        equal(d.child["computed"].wait(100 * patience()), 0, "exit code")
        check(time.monotonic() - began < 60 * SLOW * patience(), "the end took too long")


with Daemons() as d:
    c = d.client()
    check(json.loads(c.status())["state"] == "empty", c.status())
    refused(lambda: c.ask("x"), "no model is loaded", "an answer without a model")
    refused(lambda: c.until(c.send("unload"), "done"), "no model is loaded", "an unload without a model")
    c.load(model, **LOAD)
    want = c.ask("Once", max_tokens=9, ignore_eos=True).tokens
    for step in (
        lambda: garbage(d),
        lambda: limits(d),
        lambda: loading(d, c, want),
        lambda: cycles(d, c, want),
        lambda: changed_file(c, want),
        lambda: versions(d),
        lambda: second_daemon(d),
    ):
        step()
    equal(c.ask("Once", max_tokens=9, ignore_eos=True).tokens, want, "after all of it")
    slow_reader(d, c)
graceful(True)
graceful(False)
print("the socket keeps its word")
