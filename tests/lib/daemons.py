# SPDX-License-Identifier: Apache-2.0
"""The three daemons in a private directory, for tests of ntx-computed's socket.

The daemons do not outlive the test: they hold the read end of a pipe, and end with it."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))))
import wire  # noqa: E402
from patient import Deadline, Watch, patience  # noqa: E402,F401

BIN = os.environ.get("NTX_BIN") or sys.exit("run through ctest, or set NTX_BIN to build/bin")


def fail(text):
    print("FAILED:", text, file=sys.stderr)
    sys.exit(1)


def check(ok, *text):
    if not ok:
        fail(" ".join(str(t) for t in text))


def equal(a, b, what):
    if a != b:
        fail("%s: %r is not %r" % (what, a, b))


def refused(call, pattern, what):
    import re

    try:
        call()
    except wire.Refused as e:
        check(re.search(pattern, str(e)), "%s: the refusal '%s' lacks '%s'" % (what, e, pattern))
        return str(e)
    fail("%s was not refused" % what)


def descriptors(pid):
    """Number of open descriptors of a process.

    It is the least of ten samples, since the process briefly has one more while it reads /proc."""
    looks = []
    for _ in range(10):
        looks.append(len(os.listdir("/proc/%d/fd" % pid)))
        time.sleep(0.005)
    return min(looks)


def wait_for(condition, seconds, what):
    """Polls condition() until it returns a true value, which it returns.

    seconds: time on an idle machine. The limit is five times as much, and more on a busy machine (patient.py)."""
    end = Deadline(5 * seconds)
    while True:
        value = condition()
        if value:
            return value
        if end.over():
            fail("%s: not within %d s" % (what, 5 * seconds))
        threading.Event().wait(0.01)


def make_model(path, *options):
    maker = os.path.join(BIN, "ntx-mkmodel")
    if not os.path.exists(maker):
        print("skipped: ntx-mkmodel is not built")
        sys.exit(77)
    subprocess.run([maker, *options, path], check=True, stdout=subprocess.DEVNULL)
    return path


class Daemons:
    """with Daemons() as d: d.client() ..."""

    def __init__(self, *options, restart=True, grace=10, keep=False, place=None):
        """place: a name for a directory below those of other daemons, or None"""
        self.dir = place or tempfile.mkdtemp(prefix="ntx-server-")
        if place:
            os.mkdir(place)
        self.options, self.restart, self.grace = list(options), restart, grace
        self.alive = os.pipe()
        self.keep = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) if keep else ()  # as a supervisor does
        if keep:
            self.options += ["--keep", "%d,%d" % tuple(s.fileno() for s in self.keep)]
        self.child, self.starts = {}, {"iod": 0, "predictor": 0, "computed": 0}
        self.stopping = False
        self.lock = threading.Lock()
        self.log = open(os.path.join(self.dir, "log"), "w+b")

    def spawn(self, name):
        options = self.options if name == "computed" else []
        argv = [os.path.join(BIN, "ntx-" + name), "--runtime", self.dir, "--alive-fd", str(self.alive[0]), *options]
        self.child[name] = subprocess.Popen(
            argv,
            pass_fds=[self.alive[0], *(s.fileno() for s in self.keep if name == "computed")],
            stderr=self.log,
            stdin=subprocess.DEVNULL,
        )
        self.starts[name] += 1

    def watch(self):
        """Restarts workers, as a supervisor does."""
        while not self.stopping:
            with self.lock:
                for name in ("iod", "predictor"):
                    if (
                        self.restart
                        and not self.stopping
                        and name in self.child
                        and self.child[name].poll() is not None
                    ):
                        self.spawn(name)
            threading.Event().wait(0.02)

    def __enter__(self):
        for name in ("computed", "iod", "predictor"):
            self.spawn(name)
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()
        wait_for(lambda: os.path.exists(self.socket()), 10, "the client socket")
        return self

    def __exit__(self, kind, value, trace):
        self.stopping = True
        self.thread.join()
        if kind and kind is not SystemExit or (kind is SystemExit and value.code not in (0, None)):
            self.log.seek(0)
            sys.stderr.write(self.log.read().decode(errors="replace")[-4000:])
            ended = {name: p.poll() for name, p in self.child.items() if p.poll() is not None}
            if ended:
                print("daemons that had ended, with their codes:", ended, file=sys.stderr)
        self.terminate("computed")
        os.close(self.alive[1])
        for p in self.child.values():
            try:
                p.wait(10)
            except subprocess.TimeoutExpired:
                p.kill()
                p.wait()
                if not kind:
                    fail("a daemon outlived the pipe that it was given")
        os.close(self.alive[0])
        for s in self.keep:
            s.close()
        text = self.text()
        self.log.close()
        left = os.listdir(self.dir)
        shutil.rmtree(self.dir)
        if not kind and left != ["log"]:
            sys.stderr.write(text[-4000:])
            fail(
                "left in the runtime directory: %s, by daemons that ended with %s"
                % (left, {name: p.returncode for name, p in self.child.items()})
            )

    def terminate(self, name):
        if self.child[name].poll() is None:
            self.child[name].send_signal(signal.SIGTERM)

    def kill(self, name):
        with self.lock:
            self.child[name].kill()
            self.child[name].wait()

    @contextlib.contextmanager
    def held(self, name):
        """Stops a daemon for a while.

        While ntx-iod is stopped, a pass that needs the drive does not end, however fast the machine is."""
        with self.lock:
            p = self.child[name]
            p.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            p.send_signal(signal.SIGCONT)

    def socket(self):
        return os.path.join(self.dir, "ntx.sock")

    def client(self, timeout=60):
        return wire.Client(self.socket(), timeout)

    def text(self):
        self.log.flush()
        with open(os.path.join(self.dir, "log"), "rb") as f:
            return f.read().decode(errors="replace")
