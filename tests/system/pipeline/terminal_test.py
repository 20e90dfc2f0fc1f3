#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C in an answer, at the chat's prompt and while a command waits for input; output to a full disk."""

import os
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, Deadline, check, equal, fail, make_model, wait_for  # noqa: E402

NTX = os.path.join(BIN, "ntx")
SLOW = float(os.environ.get("NTX_TEST_SLOW", "1"))
tmp = tempfile.TemporaryDirectory(prefix="ntx-terminal-")
os.environ.update({"TMPDIR": tmp.name, "XDG_RUNTIME_DIR": "", "TERM": "xterm"})
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
)


class Terminal:
    """A program with a terminal of its own, whose Ctrl-C goes to all of its foreground processes."""

    def __init__(self, *argv, ntx=NTX):
        self.seen = b""
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.execv(ntx, [ntx, *argv])
        # Before that, a signal would go to this program.
        wait_for(lambda: self.program() in (None, os.path.realpath(ntx)), 10, "the start of ntx")

    def program(self):
        try:
            return os.readlink("/proc/%d/exe" % self.pid)
        except OSError:
            return None  # it has ended already

    def until(self, pattern, seconds=20):
        """Waits for the pattern; returns and discards the output up to its end."""
        end = Deadline(5 * seconds * SLOW)
        while not (m := re.search(pattern, self.seen, re.S)):
            check(not end.over(), "waited in vain for", pattern, "in", self.seen[-2000:])
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536)
                except OSError:
                    fail("ended before %r came: %r" % (pattern, self.seen[-2000:]))
        head, self.seen = self.seen[: m.end()], self.seen[m.end() :]
        return head

    def type(self, data):
        os.write(self.fd, data)

    def end(self):
        """Reads the rest of the output; returns the exit status."""
        try:
            while data := os.read(self.fd, 65536):
                self.seen += data
        except OSError:
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def chat():
    # So much is read for each token that an answer lasts for a minute and more.
    t = Terminal(
        "run",
        model,
        "--chat-template",
        "plain",
        "--ram",
        "10M",
        "--ctx",
        "512",
        "--ignore-eos",
        "--link",
        "nvme=30M",
        "-n",
        "400",
    )
    t.until(rb"Ctrl-D ends it\r\n> ")
    t.type(b"hello\n")
    t.until(rb"hello\r\n.*[^\s]")  # an answer begins
    t.type(b"\x03")
    t.until(rb"> ")  # and is cut short: the conversation goes on
    t.type(b"again\n")
    t.until(rb"again\r\n.*[^\s]")
    t.type(b"\x03")
    t.until(rb"> ")
    t.type(b"\x03")  # at an empty prompt it says what ends the chat, and ends it the second time
    t.until(rb"Ctrl-C once more\r\n> ")
    t.type(b"\x03")
    equal(t.end(), -signal.SIGINT, "Ctrl-C at the prompt, twice")
    for _ in range(8):  # at once: the prompt does not stand there before the editor has the keys
        t = Terminal("run", model, "--chat-template", "plain", "--ram", "64M", "--ctx", "64", "-n", "4")
        t.until(rb"Ctrl-D ends it\r\n> ")
        t.type(b"\x04")
        equal(t.end(), 0, "Ctrl-D at the prompt")
    equal([f for f in os.listdir(tmp.name) if f.startswith("ntx-run")], [], "left behind")


def progress():
    """Loading and the prompt's passes show progress, on one line that is cleared."""
    run = ("run", model, "word " * 200, "--raw", "-n", "2", "--ctx", "512", "--rows", "64", "--ignore-eos")
    # All of it is loaded, in a second or so; then little of it, so that the prompt's passes take their time.
    for phase, options in (
        (rb"loading [0-9.]+ of [0-9.]+ MiB at [0-9.]+ MB/s, [0-9]+ s left", ("--ram", "64M", "--link", "nvme=4M")),
        (rb"prompt 64 of [0-9]+", ("--ram", "12M", "--link", "nvme=40M")),
    ):
        t = Terminal(*run, *options)
        t.until(rb"\r\x1b\[K" + phase)
        equal(t.end(), 0, "a run on a terminal")


def waits_for_input():
    for argv in (("tokenize", model), ("detokenize", model), ("run", model, "-", "--ram", "64M")):
        t = Terminal(*argv)
        t.type(b"[1,\n")
        t.until(rb"\[1,\r\n")
        t.type(b"\x03")
        equal(t.end(), -signal.SIGINT, "Ctrl-C where %s waits for input" % argv[0])


def no_daemons():
    """Without daemons, the user is not asked for a prompt."""
    alone = os.path.join(tmp.name, "alone")
    os.mkdir(alone)
    shutil.copy(NTX, alone)
    nobody = rb"ntx: no daemons run: neither the service \(/run/ntx\) nor `ntx up`"
    missing = (
        b"ntx: "
        + re.escape(alone.encode())
        + rb"/ntx-computed: No such file or directory; the daemons belong beside ntx itself"
    )
    for argv, ntx, pattern in (
        (("generate",), NTX, nobody),
        (("generate", "-"), NTX, nobody),
        (("chat",), NTX, nobody),
        (("run", model, "-"), os.path.join(alone, "ntx"), missing),
        (("run", model), os.path.join(alone, "ntx"), missing),
        (("up", model), os.path.join(alone, "ntx"), missing),
    ):
        t = Terminal(*argv, ntx=ntx)
        equal(t.end(), 111, "without daemons: " + " ".join(argv))
        check(re.match(pattern, t.seen) and t.seen.count(b"\n") == 1, argv, "said", t.seen)


def no_room():
    if not (os.path.exists("/dev/full") and stat.S_ISCHR(os.stat("/dev/full").st_mode)):
        print("no /dev/full here: output without room is not tried")
        return
    run = ("run", model, "x", "--raw", "-n", "4", "--ram", "64M", "--ctx", "64", "--quiet")
    for argv in (
        run,
        (*run, "--json"),
        (*run, "--stats", "-"),
        ("inspect", model),
        ("inspect", model, "--json"),
        ("--help",),
    ):
        with open("/dev/full", "w") as full:
            p = subprocess.run([NTX, *argv], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=60)
        equal((p.returncode, p.stderr), (111, b"ntx: standard output: No space left on device\n"), " ".join(argv))
    for option in ("--stats", "--trace"):
        p = subprocess.run(
            [NTX, *run, option, "/dev/full"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
        equal(p.returncode, 111, option)
        check(re.fullmatch(rb"ntx: /dev/full: .*No space left on device\n", p.stderr), option, p.stderr)
    p = subprocess.run(
        [NTX, "logits", model, "--tokens", "1,2", "-o", "/dev/full", "--ram", "64M", "--ctx", "64", "--quiet"],
        stderr=subprocess.PIPE,
        timeout=60,
    )
    equal(p.returncode, 111, "logits")
    check(re.fullmatch(rb"ntx: /dev/full: .*No space left on device\n", p.stderr), "logits", p.stderr)


chat()
progress()
waits_for_input()
no_daemons()
no_room()
print("Ctrl-C and a full disk do what they should")
