#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A machine that dies or hangs: its clients get an error within a bound, no process is left on any machine, and a new
start goes on from what --state has of the text."""

import os
import signal
import subprocess
import time

from machines import ASK, DEMO, NTX, SLOW, Machines, cleanup, daemons, env, fail, gone, ntx, stats, tmp

KEPT = os.path.join(tmp, "state")
LIMIT_S = 60  # computed/ranks/ranks.h
PROMPT = " ".join(["a dragon who lived in a cave near the sea and liked to read books"] * 4)
ROWS = [[DEMO, "--ctx", "256", "--ram", "40M", "--threads", "1", *more] for more in (["--state", KEPT], [])]
text = ntx("run", DEMO, PROMPT, *ASK).stdout


def start(**how):
    m = Machines(*ROWS, **how)
    if not m.ready():
        fail(m.text())
    return m


def goes_on():
    path = os.path.join(tmp, "stats")
    if ntx("generate", PROMPT, *ASK, "--stats", path).stdout != text or not stats(path)["cached_tokens"] > 32:
        fail("after a machine's death: another text, or nothing of it was kept: %s" % stats(path))


def keeps():
    if ntx("generate", PROMPT, *ASK).stdout != text:
        fail("another text")
    end = time.time() + 20 * SLOW
    while not any(n.endswith(".prefix") for n in os.listdir(KEPT)):
        if time.time() > end:
            fail("nothing of the text is in --state")
        time.sleep(0.05)


def dies():
    m = start()
    keeps()
    os.kill(daemons("ntx-computed")[1], signal.SIGKILL)
    if m.ended(30) == 0:
        fail("a machine died, and mpirun ended well")
    if "have to be started again, all of them" not in m.text() and "exited" not in m.text():
        fail("no word of the death: " + m.text())
    gone("a machine died")


def mpirun_dies():
    """mpirun is killed, and cannot end its processes."""
    m = start()
    os.kill(m.process.pid, signal.SIGKILL)
    m.process.wait()
    gone("mpirun was killed")


def hangs():
    """A stopped process cannot end when all others do."""
    m = start()
    ntx("generate", "One", *ASK)
    began = time.time()
    os.kill(daemons("ntx-computed")[1], signal.SIGSTOP)
    p = subprocess.run(
        [NTX, "generate", PROMPT, *ASK], env=env, capture_output=True, text=True, timeout=3 * LIMIT_S * SLOW
    )
    if (
        p.returncode != 111
        or "rank 1 gave nothing for %d s; start all of them again" % LIMIT_S not in p.stderr
        or time.time() - began < LIMIT_S - 5
    ):
        fail("a machine hangs: %d, %s" % (p.returncode, p.stderr))
    if m.ended(30) == 0 or "another machine is lost: ending, so that all may be started again" not in m.text():
        fail("a machine hangs, and mpirun ended well: " + m.text())
    gone("a machine hung")


def respawned():
    m = start(respawn=True)
    os.kill(daemons("ntx-computed")[1], signal.SIGKILL)
    if not m.ready(2):
        fail("was not started again: " + m.text())
    goes_on()
    if "the machines that share the model have ended: starting them again in 1 s" not in m.text():
        fail("no word of the start: " + m.text())
    os.kill(daemons("ntx")[0], signal.SIGKILL)  # and again: of the first machine
    if not m.ready(3):
        fail("was not started a second time: " + m.text())
    goes_on()
    ntx("stop")
    if m.ended(30) != 0:
        fail("after ntx stop: " + m.text())
    m = start(respawn=True)
    m.process.terminate()
    if m.ended(30) != 0:
        fail("after SIGTERM: " + m.text())
    gone("ntx up --respawn was ended")
    m = start(respawn=True)
    m.process.kill()
    gone("ntx up --respawn was killed")
    if (
        "starts all machines" not in ntx("up", DEMO, "--respawn", "mpirun", rc=111).stderr
        or "exit code 127: it is not started again" not in ntx("up", "--respawn", "/no/such/mpirun", rc=111).stderr
    ):
        fail("what --respawn cannot do")


os.mkdir(KEPT)
try:
    dies()
    mpirun_dies()
    m = start()
    goes_on()
    ntx("stop")
    m.ended(30)
    respawned()
    hangs()
finally:
    cleanup()
print("machines die and hang, and begin again")
