#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mishaps of a service, after which it has as many descriptors and as much memory as before.

The model's file cut or rewritten while it is loaded, a drive that stalls, a crowd of connections, a client that never
reads, clients that leave in the middle of an answer; then hundreds of generations. `survival_test.py --long`, with
NTX_LONG set, does the campaign: 200 generations during each of which a random daemon is killed at a random moment, a
stall of 10 s, thousands of generations; it prints its figures.
"""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import wire  # noqa: E402
from daemons import BIN, Daemons, check, descriptors, equal, fail, make_model, patience, refused, wait_for  # noqa: E402

LONG = "--long" in sys.argv
if LONG and "NTX_LONG" not in os.environ:
    print("skipped: the campaign is part of tests/run --long (NTX_LONG is set there)")
    sys.exit(77)
with open(os.path.join(BIN, "ntx-computed"), "rb") as f:
    SANITIZED = b"__asan_init" in (text := f.read()) or b"__tsan_init" in text  # these keep what is freed
SHAPE = ["--layers", "6", "--embd", "512", "--ff", "1536", "--heads", "8", "--kv", "2", "--type", "Q8_0", "--seed", "3"]
PROMPT = "Once upon a time"


def usage(pid):
    """Descriptors and private writable memory (bytes) of a process.

    Read-only pages of programs and libraries are left out: they become private by themselves when another test's
    daemon, which shared them, ends.
    """
    private, writable = 0, False
    with open("/proc/%d/smaps" % pid) as f:
        for line in f:
            word = line.split()
            if "-" in word[0]:  # addresses, rights, ...
                writable = "w" in word[1]
            elif writable and word[0].startswith("Private_"):
                private += int(word[1])
    return descriptors(pid), private * 1024


def changed_files(d, tmp, model):
    """Ways in which a file can change: the answer under way fails with the file's name, and no token was wrong."""
    copy = os.path.join(tmp, "changing.gguf")
    change = {
        "shorter": lambda: os.truncate(copy, os.path.getsize(copy) // 2),
        "longer": lambda: os.truncate(copy, os.path.getsize(copy) + 4096),
        "rewritten, its time put back": lambda: rewrite(copy),
        "of another mode": lambda: os.chmod(copy, 0o600),  # ctime alone tells
    }
    for what, do in change.items():
        shutil.copy(model, copy)
        c = d.client()
        c.load(copy, ram_bytes=14 << 20, ctx=128, link_nvme_bps=60e6)
        request = c.generate(PROMPT, ignore_eos=True, max_tokens=100)
        tokens = [c.until(request, "token")["token"] for _ in range(3)]
        do()
        begin = time.monotonic()
        while True:
            try:
                r = c.next(request)
            except wire.Refused as e:
                check("changing.gguf" in str(e), what, "is told as:", e)
                break
            check("done" not in r, "an answer from a file that became", what)
            if "token" in r:
                tokens.append(r["token"]["token"])
        check(time.monotonic() - begin < 100 * patience(), what, "took", time.monotonic() - begin)
        shutil.copy(model, copy)
        c.load(copy, ram_bytes=14 << 20, ctx=128)
        equal(
            tokens,
            c.ask(PROMPT, ignore_eos=True, max_tokens=100).tokens[: len(tokens)],
            "tokens before the file became " + what,
        )
        c.close()


def rewrite(path):
    st = os.stat(path)
    with open(path, "r+b") as f:
        f.seek(st.st_size // 2)
        f.write(os.urandom(65536))
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def stalled_drive(d, model, want, seconds):
    c = d.client()
    c.load(model, ram_bytes=14 << 20, ctx=128, fault="iod:stall=%ds@read=150" % seconds)
    begin = time.monotonic()
    request = c.generate(PROMPT, ignore_eos=True, max_tokens=24)
    other = d.client(timeout=5)
    for _ in range(3):  # the daemon answers others meanwhile
        json.loads(other.status())
    other.close()
    equal(c.answer(request).tokens, want, "tokens over a stalled drive")
    took = time.monotonic() - begin
    check(seconds * 0.9 < took < seconds + 100 * patience(), "a stall of", seconds, "s took", took)
    c.close()
    return took


def crowd(d, c, want):
    """More connections than are accepted, at once.

    Those that are in go on, the others get an error or are closed, and afterwards all is as before.
    """
    held, told = [], 0
    for _ in range(500):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.settimeout(5 * patience())
        try:
            s.connect(d.socket())
        except OSError:
            told += 1
            continue
        held.append(s)
    equal(c.ask(PROMPT, ignore_eos=True, max_tokens=24).tokens, want, "an answer in the crowd")
    for s in held:
        s.close()

    def again():
        try:
            k = d.client(timeout=5)
            k.status()
            k.close()
            return True
        except (OSError, wire.Gone, wire.Refused):
            return False

    wait_for(again, 10, "a place after the crowd")


def rude(d, c, want, rng):
    """Clients that never read, and clients that leave in the middle of an answer."""
    mute = []
    for _ in range(4):
        k = d.client()
        k.send("logits", {"tokens": [rng.randrange(200) for _ in range(100)]})
        mute.append(k)
    for _ in range(8):
        k = d.client()
        request = k.generate(PROMPT, ignore_eos=True, max_tokens=100)
        k.until(request, "started", "token")
        k.close()
    equal(c.ask(PROMPT, ignore_eos=True, max_tokens=24).tokens, want, "an answer beside rude clients")
    for k in mute:
        k.close()
    wait_for(lambda: json.loads(c.status())["sessions"] == 0, 20, "all sessions are gone")


def slots(d):
    """Ring slots and frames that are tainted and not reused yet."""
    top = subprocess.run(
        [os.path.join(BIN, "ntx-top"), "--runtime", d.dir, "--json", "--interval", "0.05"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(top.stdout)["counters"]["comp_quarantined_slots"]


def leaks(d, c, want, n, batch=lambda work: work()):
    """After n generations, descriptors and memory are as after the first 40. `batch` may wait between some."""
    pids = {name: p.pid for name, p in d.child.items()}

    def some(k):  # eight at a time: four write in the same passes, four wait for their memory
        for at in range(0, k, 8):
            asked = [c.generate(PROMPT, ignore_eos=True, max_tokens=2) for _ in range(min(8, k - at))]
            for request in asked:
                equal(c.answer(request).tokens, want[:2], "tokens")

    some(40)
    before = {name: usage(pid) for name, pid in pids.items()}
    for at in range(0, n, 100):
        batch(lambda: some(min(100, n - at)))
    for name, pid in pids.items():
        fds, memory = usage(pid)
        equal(fds, before[name][0], "descriptors of %s after %d generations" % (name, n))
        grown = memory - before[name][1]
        check(SANITIZED or grown < (2 << 20), name, "grew by", grown, "bytes in", n, "generations")
        print(
            "ntx-%s after %d generations: %d descriptors as before, %d KiB of private memory more"
            % (name, n, fds, grown >> 10)
        )
    s = json.loads(c.status())
    equal((s["sessions"], s["kv_blocks_used"], slots(d)), (0, 0, 0), "sessions, KV blocks and slots held")


def kills(d, model, want, rounds, rng):
    """A random daemon dies at a random moment: a worker's death costs nothing, computed's gives a clear error."""
    killed = {"iod": 0, "predictor": 0, "computed": 0}
    longest = 0
    c = None
    for i in range(rounds):
        if c is None:
            c = d.client()
            c.load(model, ram_bytes=14 << 20, ctx=128, link_nvme_bps=200e6)
        who = rng.choice(["iod", "iod", "predictor", "predictor", "computed"])
        timer = threading.Timer(rng.random() * 0.9, lambda: d.kill(who))
        begin = time.monotonic()
        request = c.generate(PROMPT, ignore_eos=True, max_tokens=24)
        timer.start()
        try:
            tokens = c.answer(request).tokens
            equal(tokens, want, "tokens of round %d (%s)" % (i, who))
        except (wire.Gone, wire.Refused, ConnectionError, BrokenPipeError) as e:
            check(who == "computed", "round %d: %s died, and the answer failed: %r" % (i, who, e))
        timer.join()
        longest = max(longest, time.monotonic() - begin)
        killed[who] += 1
        if who == "computed":
            c.close()
            c = None
            with d.lock:
                d.spawn("computed")
            wait_for(lambda: os.path.exists(d.socket()) and reachable(d), 20, "computed again")
    if c:
        c.close()
    return killed, longest


def reachable(d):
    try:
        d.client(timeout=5).close()
        return True
    except OSError:
        return False


def main():
    rng = random.Random(int(os.environ.get("NTX_SEED", "20261121")))
    with tempfile.TemporaryDirectory(prefix="ntx-survival-") as tmp:
        model = make_model(os.path.join(tmp, "m.gguf"), *SHAPE)
        with Daemons() as d:
            c = d.client()
            c.load(model, ram_bytes=14 << 20, ctx=128, sessions=4)
            want = c.ask(PROMPT, ignore_eos=True, max_tokens=24).tokens
            crowd(d, c, want)
            rude(d, c, want, rng)
            n = int(os.environ.get("NTX_GENERATIONS", "10000")) if LONG else 100
            leaks(d, c, want, n)
            c.close()
            changed_files(d, tmp, model)
            took = stalled_drive(d, model, want, 10 if LONG else 2)
            print("%d generations without a leak; a stalled drive: answer after %.1f s" % (n, took))
        if LONG:
            with Daemons() as d:
                rounds = int(os.environ.get("NTX_ROUNDS", "200"))
                killed, longest = kills(d, model, want, rounds, rng)
            print(rounds, "generations, killed:", killed, "the longest took %.1f s" % longest)


if __name__ == "__main__":
    main()
