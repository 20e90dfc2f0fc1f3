# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests of several machines: mpirun starts `ntx up` on each, all on this machine."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests"))
sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
import mpi  # noqa: E402
from patient import patience  # noqa: E402

BIN = os.path.join(os.environ["NTX_BUILD"], "bin")
NTX = os.path.join(BIN, "ntx")
MODELS = os.path.join(os.environ["NTX_SOURCE"], "models")
SLOW = float(os.environ.get("NTX_TEST_SLOW", "1"))
DEMO = os.path.join(MODELS, "demo.gguf")


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def fail(what):
    print("failed:", what)
    sys.exit(1)


if not shutil.which("mpirun"):
    skip("there is no mpirun (Debian: openmpi-bin)")
if not os.path.exists(os.path.join(BIN, "libntx-mpi.so")):
    skip("this build has no MPI plug-in (Debian: libopenmpi-dev)")

tmp = tempfile.mkdtemp(prefix="ntx-ranks-")
env = mpi.environment(tmp)
SOCKET = os.path.join(tmp, "ntx.sock")


class Machines:
    """rows: the arguments of each machine's `ntx up`. respawn: by `ntx up --respawn`. by: words before each `ntx`.
    options: mpirun's own."""

    all = []

    def __init__(self, *rows, respawn=False, by=(), options=()):
        words = ["mpirun", "--oversubscribe", *options]
        for i, row in enumerate(rows):
            words += ([":"] if i else []) + ["-n", "1", *by, NTX, "up"] + row
        if respawn:
            words = [NTX, "up", "--respawn", shlex.join(words)]
        self.log = open(os.path.join(tmp, "log"), "w+")
        self.process = subprocess.Popen(
            words, env=env, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True
        )
        Machines.all.append(self)

    def text(self):
        self.log.seek(0)
        return self.log.read()

    def ready(self, times=1):
        end = time.time() + 60 * SLOW
        while time.time() < end:
            if self.text().count("ready with") >= times:
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.02)
        fail("not ready: " + self.text())

    def ended(self, seconds):
        try:
            return self.process.wait(seconds * SLOW)
        except subprocess.TimeoutExpired:
            self.kill()
            fail("mpirun has not ended within %g s: %s" % (seconds * SLOW, self.text()))

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def daemons(name):
    """Processes of that name that mpirun started here, the first machine's first."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as f:
                of = dict(e.split(b"=", 1) for e in f.read().split(b"\0") if b"=" in e)
            with open("/proc/%s/comm" % pid) as f:
                comm = f.read().strip()
        except OSError:
            continue
        if of.get(b"NTX_RUNTIME") == tmp.encode() and b"OMPI_COMM_WORLD_RANK" in of and comm == name[:15]:
            found.append((int(of[b"OMPI_COMM_WORLD_RANK"]), int(pid)))
    return [pid for _, pid in sorted(found)]


def ntx(*args, rc=0):
    p = subprocess.run([NTX, *args], env=env, capture_output=True, text=True, timeout=120 * SLOW * patience())
    if p.returncode != rc:
        fail("ntx %s: %d instead of %d: %s" % (" ".join(args), p.returncode, rc, p.stderr))
    return p


ASK = ["--temp", "0", "-n", "24", "--raw", "--ignore-eos", "--quiet"]
PROMPT = "Once upon a time"


def stats(path):
    with open(path) as f:
        return json.load(f)


def gone(why):
    """No process of any machine is left."""
    end = time.time() + 60 * SLOW
    names = ("ntx", "ntx-iod", "ntx-predictor", "ntx-computed")
    while any(daemons(n) for n in names):
        if time.time() > end:
            fail("%s, and processes are left: %s" % (why, [daemons(n) for n in names]))
        time.sleep(0.05)


def cleanup():
    for left in Machines.all:  # after a failure
        if left.process.poll() is None:
            left.process.terminate()
            left.ended(30)
    shutil.rmtree(tmp, ignore_errors=True)
