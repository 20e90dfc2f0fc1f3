# SPDX-License-Identifier: Apache-2.0
"""How many times as long as alone on this machine something takes now, for limits of time. patient.sh and patient.h are its twins.
The larger of two: what a thread's time by the clock is to its time of the processor, and the processes that want to run to the processors."""

import os
import time

_known = [0.0, 1.0]  # when it was measured, and how much it was


def patience():
    """At least 1. Measured once a second at most."""
    if time.monotonic() - _known[0] < 1:
        return _known[1]
    wall, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < 0.01:
        pass
    wall = time.monotonic() - wall
    with open("/proc/loadavg") as f:
        load, _, _, running, _ = f.read().split()
    wants = max(float(load), int(running.split("/")[0]) - 1) / len(os.sched_getaffinity(0))
    _known[:] = time.monotonic(), max(1.0, wall / 0.01, wants)
    return _known[1]


class Deadline:
    """So many seconds of a machine that has nothing else to do. Ask again and again whether it is over."""

    def __init__(self, seconds):
        self.left, self.at = seconds, time.monotonic()

    def over(self):
        now = time.monotonic()
        self.left -= (now - self.at) / patience()
        self.at = now
        return self.left < 0


class Watch:
    """took(): the seconds since, as they would have been on a machine that has nothing else to do."""

    def __init__(self):
        self.busy, self.begin = patience(), time.monotonic()

    def took(self):
        return (time.monotonic() - self.begin) / max(self.busy, patience())
