#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The cost of recording a trace.

  cost.py BUILD MODEL [SECONDS [TOKENS [options of `ntx up`...]]]
  cost.py --pool FILE...     the same figures from the output of several runs (of one model with the same options)

In one pair of daemons, answers of TOKENS tokens are written in turn without records (A), with them (B), and with them
while `ntx trace` copies them out (C), in a random order and back (B A C C A B). The times per token of each six answers
give ratios to A; the median of all ratios, with a 95 % interval by bootstrap, is the cost, in time and in CPU time (the
better figure where others use the machine; with --threads 1, since then no thread spins). Everything but the records is
the same: the process, its memory, the text. CSV of each six first.
"""

import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/lib"))
pool = sys.argv[2:] if sys.argv[1] == "--pool" else None
if not pool:
    build, model = os.path.abspath(sys.argv[1]), sys.argv[2]
    os.environ["NTX_BIN"] = os.path.join(build, "bin")
    import wire

    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 100
    tokens = int(sys.argv[4]) if len(sys.argv) > 4 else 64
    options = sys.argv[5:]


def interval(ratios):
    rng = random.Random(1)
    medians = sorted(statistics.median(rng.choices(ratios, k=len(ratios))) for _ in range(2000))
    return medians[50], medians[1949]


def cpu_ns(pid):
    total = 0
    for task in os.listdir("/proc/%d/task" % pid):
        with open("/proc/%d/task/%s/schedstat" % (pid, task)) as f:
            total += int(f.read().split()[0])
    return total


class Pipeline:
    def __init__(self, runtime):
        self.env = dict(os.environ, NTX_RUNTIME=runtime)
        self.up = subprocess.Popen(
            [os.path.join(build, "bin/ntx"), "up", model, "--ctx", "256", *options],
            env=self.env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in self.up.stderr:
            if "ready" in line:
                break
        self.client = wire.Client(os.path.join(runtime, "ntx.sock"), 100)
        self.pid = json.loads(self.client.status())["pid"]
        self.switch = subprocess.Popen(
            [os.path.join(build, "bench/bench_trace_switch"), runtime],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.recorder = subprocess.Popen(
            [
                os.path.join(build, "bin/ntx"),
                "trace",
                "-o",
                os.path.join(runtime, "..", "t.json"),
                "--seconds",
                "3600",
                "--quiet",
            ],
            env=self.env,
        )

    def set(self, records, copied):
        self.recorder.send_signal(signal.SIGCONT if copied else signal.SIGSTOP)
        print(int(records), file=self.switch.stdin, flush=True)
        return int(self.switch.stdout.readline())

    def per_token(self, arm):
        """ns for a token: after the first, by computed's own clock; and of computed's CPU time, prompt included."""
        self.set(arm != "A", arm == "C")
        before = cpu_ns(self.pid)
        a = self.client.ask("Once upon a time", ignore_eos=True, max_tokens=tokens)
        return 1e9 / json.loads(a.stats)["decode_tok_s"], (cpu_ns(self.pid) - before) / tokens

    def end(self):
        self.set(True, True)
        self.recorder.send_signal(signal.SIGINT)
        self.recorder.wait()
        self.switch.stdin.close()
        self.switch.wait()
        self.up.send_signal(signal.SIGTERM)
        self.up.wait()


def measure(p):
    """[[(wall ns, CPU ns) for A, B, C]], each the mean of two answers"""
    for arm in "ABCABC":
        p.per_token(arm)
    got, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        sums = {arm: [0, 0] for arm in "ABC"}
        order = "".join(random.sample("ABC", 3))
        for arm in order + order[::-1]:
            for k, ns in enumerate(p.per_token(arm)):
                sums[arm][k] += ns / 2
        got.append([tuple(s) for s in sums.values()])
        print(",".join("%.0f" % ns for s in got[-1] for ns in s), flush=True)
    return got


def read(files):
    got = []
    for name in files:
        with open(name) as f:
            rows = [[float(x) for x in line.split(",")] for line in f if re.fullmatch(r"[0-9,]+\s*", line)]
        got += [list(zip(r[::2], r[1::2])) for r in rows]
    return got


def report(got):
    for k, what in enumerate(("time", "CPU time of ntx-computed")):
        print("%s: %.0f ns a token without records" % (what, statistics.median(x[0][k] for x in got)))
        for name, at in (("records", 1), ("records, copied out", 2)):
            ratios = [x[at][k] / x[0][k] - 1 for x in got]
            print(
                "    %s: %+.2f %% (median; 95 %% interval %+.2f to %+.2f)"
                % (name, 100 * statistics.median(ratios), *(100 * x for x in interval(ratios)))
            )


def main():
    if pool:
        got = read(pool)
        print("%d times six answers, of %d runs" % (len(got), len(pool)))
        return report(got)
    with tempfile.TemporaryDirectory() as tmp:
        p = Pipeline(os.path.join(tmp, "rt"))
        got = measure(p)
        before = p.set(True, False)
        p.per_token("B")
        records = p.set(True, False) - before
        p.end()
    print("%d times six answers of %d tokens; %.1f records a token" % (len(got), tokens, records / tokens))
    report(got)


main()
