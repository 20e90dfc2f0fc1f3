#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What clients can make grow is bounded by --ram: kept conversations, prompts being read, requests being received.

Other clients' tokens go on meanwhile.
"""

import os
import struct
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import wire  # noqa: E402
from daemons import Daemons, check, equal, make_model, patience, refused, wait_for  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-server-model-")
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
    "--layers",
    "1",
    "--embd",
    "64",
    "--ff",
    "128",
    "--heads",
    "2",
    "--kv",
    "1",
    "--type",
    "Q8_0",
    "--seed",
    "5",
)
SLOW = float(os.environ.get("NTX_TEST_SLOW", "1"))
SANITIZED = SLOW > 1  # a sanitizer keeps what was freed for a while
RAM, BESIDE = 100 << 20, 64 << 20
FRAME = 16 << 20


def field(pid, name):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(name + ":"))


class Peak:
    """The peak memory of the three daemons while it runs: private memory, and the region once."""

    def __init__(self, d):
        self.pids, self.most, self.end = [p.pid for p in d.child.values()], 0, False
        self.region = field(d.child["computed"].pid, "RssShmem")
        self.thread = threading.Thread(target=self.look)

    def look(self):
        while not self.end:
            self.most = max(self.most, self.region + sum(field(pid, "RssAnon") for pid in self.pids))
            time.sleep(0.002)

    def __enter__(self):
        self.before = sum(field(pid, "RssAnon") for pid in self.pids)
        self.thread.start()
        return self

    def __exit__(self, *a):
        self.end = True
        self.thread.join()

    def check(self, most, what):
        grown = self.most - self.region - self.before
        print("%s: %.1f MiB in all, %.1f MiB more than before" % (what, self.most / 2**20, grown / 2**20))
        check(SANITIZED or grown < most, what, "grew by", grown >> 20, "MiB, more than", most >> 20)
        check(SANITIZED or self.most < RAM + BESIDE, what, "took", self.most >> 20, "MiB")


def conversations(d):
    """Two clients whose conversations grow: many texts, long texts, and texts of which little is kept."""
    blank = [{"role": "user", "text": b" " * (250 << 10) + b"x"}]
    form = {"chat_template": "llama-2", "keep": True, "max_tokens": 1, "ignore_eos": True}
    with Peak(d) as peak:
        clients = [d.client(), d.client()]
        first, last = {}, {}
        for c in clients:
            first[c] = c.ask(messages=blank, **form).started["session"]
        for n in range(40):
            for c in clients:
                last[c] = c.ask(tokens=[300] * 3000, keep=True, max_tokens=1, ignore_eos=True).started["session"]
        for n in range(40):
            for c in clients:
                equal(
                    c.ask(messages=blank, session=last[c], **form).started["session"], last[c], "a conversation goes on"
                )
    # The limit of kept conversations, a request of each client, and the allocator's slack.
    peak.check((RAM // 128) + (12 << 20), "growing conversations")
    check(RAM // 128 < 2 * 40 * 3000 * 4, "the conversations are too short to be forgotten")
    for c in clients:  # what nobody has gone on with for longest is gone
        refused(lambda: c.ask(messages=blank, session=first[c], **form), "not there any more", "the first conversation")
        c.close()


def gaps(c, until):
    """The longest time between two tokens of an answer that goes on until it is cancelled."""
    r = c.generate("A", ignore_eos=True, max_tokens=0)
    worst, n, last = 0.0, 0, None
    while True:
        m = c.next(r)
        now = time.monotonic()
        if "token" in m:
            worst, last, n = max(worst, now - last if last else 0.0), now, n + 1
        if "done" in m:
            if until.is_set():
                return worst, n
            r = c.generate("A", ignore_eos=True, max_tokens=0)
            last = None
        elif until.is_set():
            c.send("cancel", {"target": r})


def prompts(d):
    """Prompts of the greatest size, of every shape that is expensive.

    Each is refused soon and in little memory, and no other client notices.
    """
    words = (b"once upon a time there was " * (FRAME // 27))[: FRAME - 4096]
    shapes = {
        "words": words,
        "one word": b"a" * (FRAME - 4096),
        "blanks": b" " * (FRAME - 4096),
        "no text": bytes(range(128, 256)) * (FRAME // 128 - 32),
        "a word that might fit": b"ab" * (100 << 10),
        "lines": b"\n" * (8 << 20),
    }
    other, end, seen = d.client(), threading.Event(), []
    thread = threading.Thread(target=lambda: seen.append(gaps(other, end)))
    with Peak(d) as peak:
        thread.start()
        for name, text in shapes.items():
            for as_chat in (False, True):
                c = d.client()
                begin = time.monotonic()
                why = refused(
                    lambda: (
                        c.ask(messages=[{"role": "user", "text": text}], chat_template="plain")
                        if as_chat
                        else c.ask(text)
                    ),
                    "shorten it",
                    name,
                )
                took = time.monotonic() - begin
                print(
                    "%s, %d bytes%s: %.2f s: %s"
                    % (name, len(text), " in a conversation" if as_chat else "", took, why[:70])
                )
                check(
                    took < 10 * SLOW * patience(), name, "was refused after", took
                )  # a second alone; what grows with the square of the length takes minutes
                c.close()
        end.set()
        thread.join()
    peak.check((RAM // 64) + 2 * FRAME + (12 << 20), "prompts")
    worst, n = seen[0]
    print("%d tokens of another client meanwhile, %.0f ms between two at most" % (n, 1000 * worst))
    check(n > 20 and worst < 1 * SLOW * patience(), "tokens of another client:", n, "with a gap of", worst)
    other.close()


def leaving(d):
    """The prompt of a client that left is not read to its end: the next client does not wait for that."""
    for _ in range(20):
        c = d.client()
        c.generate(b"once upon a time " * (900 << 10))
        c.close()
    c = d.client()
    begin = time.monotonic()
    equal(len(c.ask("A", ignore_eos=True, max_tokens=3).tokens), 3, "tokens")
    check(time.monotonic() - begin < 5 * SLOW * patience(), "the next prompt waited", time.monotonic() - begin)
    # Cancelling a prompt that is being read, and one that waits for it.
    ids = [c.generate("word " * 1500, ignore_eos=True, max_tokens=0) for _ in range(4)]
    for i in ids:
        c.send("cancel", {"target": i})
    for i in ids:
        equal(c.answer(i).finish, "cancel", "finish")
    c.close()


def same_id(d):
    """A request with the id of one under way is refused, and releases nothing of the other."""
    big = wire.frame({"id": 7, "generate": wire.generation("A", ignore_eos=True, max_tokens=0, stop=["z" * 4000] * 60)})
    c = d.client()
    c.sock.sendall(big)
    while "token" not in c.next(7):
        pass
    held = 7
    for _ in range(5):
        c.sock.sendall(wire.frame({"id": held, "status": {}}))
    seen = 0
    while seen < 5:
        r = c.reply()
        seen += "error" in r and "same id is under way" in r["error"]["text"]
    # A client at twice its share may send no more; 5 refusals have released nothing.
    c.sock.setblocking(False)
    body = wire.pack(wire.REQUEST, {"id": 8, "generate": {"prompt": b"a" * (FRAME - 64), "raw": True}})
    blocker = d.client()  # the one that may send a big one
    blocker.sock.sendall(struct.pack("<I", 8 << 20) + b"\x0a" * (1 << 20))
    time.sleep(0.2)
    sent, data = 0, struct.pack("<I", len(body)) + body
    end = time.monotonic() + 1
    while time.monotonic() < end and sent < len(data):
        try:
            sent += c.sock.send(data[sent : sent + 65536])
        except BlockingIOError:
            time.sleep(0.01)
    check(sent < 2 << 20, "bytes taken beyond the share:", sent)
    c.close()
    blocker.close()


def main():
    with Daemons() as d:
        c = d.client()
        c.load(model, ctx=4096, sessions=3, ram_bytes=RAM, threads=1)
        c.close()
        for part in (conversations, prompts, leaving, same_id):
            part(d)
            wait_for(lambda: probe(d) == 3, 10, "all is as before")


def probe(d):
    c = d.client()
    try:
        return len(c.ask("A", ignore_eos=True, max_tokens=3).tokens)
    finally:
        c.close()


main()
