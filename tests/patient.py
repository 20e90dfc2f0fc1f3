# SPDX-License-Identifier: Apache-2.0
"""Time limits that grow on a busy machine. patient.sh and patient.h do the same.

patience() says how much longer something takes now than on an idle machine. It is the larger of two ratios: a thread's
wall time to its processor time, and the runnable processes to the processors."""

import os
import time

_known = [0.0, 1.0]  # time of the last measurement, and its value


def patience():
    """The present factor, at least 1. It is measured at most once a second."""
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
    """A limit in seconds of an idle machine. Call over() again and again."""

    def __init__(self, seconds):
        self.left, self.at = seconds, time.monotonic()

    def over(self):
        now = time.monotonic()
        self.left -= (now - self.at) / patience()
        self.at = now
        return self.left < 0


class Watch:
    """took(): the seconds since the start, converted to those of an idle machine."""

    def __init__(self):
        self.busy, self.begin = patience(), time.monotonic()

    def took(self):
        return (time.monotonic() - self.begin) / max(self.busy, patience())
