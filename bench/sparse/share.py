#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What share of the drive's rate a packed model gets during decode, measured in turn with the drive itself. CSV.

    bench/sparse/share.py PACKED --modes off,threshold=0 --ram least,10M [--turns R] [-n N] [--trace]
                          [--bin NAME=DIR,...] [--options "..."]

A drive that others use changes from minute to minute. So each run stands between two runs of bench_replay: reads of
exactly the sizes in a trace of this run, at random offsets of the same file, without dependences. One with 4 MiB in
flight, the bytes not looked at, as the profile measures (share: the run over the mean of the two); and one with 1 MiB
in flight, each byte read once by the processor, the most that inference with a ring of that size can have
(share_looked). NAME=DIR: builds to compare, in turn; `least`: the smallest budget that all modes and builds accept.
--trace adds where a token's time goes: time without a read in flight (idle), and waits of compute.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PROMPT = "Once upon a time, a quiet girl named Lily lived by the garden."


def ntx(bin, model, options, n, trace=None):
    with tempfile.NamedTemporaryFile() as f:
        p = subprocess.run(
            [
                bin + "/ntx",
                "run",
                model,
                PROMPT,
                "--raw",
                "-n",
                str(n),
                "--ignore-eos",
                "--temp",
                "0",
                "--ctx",
                "256",
                "--quiet",
                "--stats",
                f.name,
                *options,
                *(["--trace", trace] if trace else []),
            ],
            capture_output=True,
            text=True,
        )
        if p.returncode:
            sys.exit(p.stderr)
        return json.load(open(f.name))


def smallest(bin, model, options):
    p = subprocess.run(
        [bin + "/ntx", "run", model, "x", "-n", "2", "--quiet", "--ctx", "256", "--ram", "1M", *options],
        capture_output=True,
        text=True,
    )
    return int(re.search(r"\((\d+) bytes\)", p.stderr).group(1))


def events(bin, model, options, n):
    with tempfile.NamedTemporaryFile(suffix=".json") as f:
        ntx(bin, model, options, n, f.name)
        return [e for e in json.load(open(f.name))["traceEvents"] if e.get("ph") == "X"]


def sizes(bin, model, options):
    reads = [e for e in events(bin, model, options, 24) if e["pid"] == 1]
    return [e["args"]["bytes"] for e in sorted(reads, key=lambda e: e["ts"])[len(reads) // 2 :]]


def drive(replay, model, list_of_sizes, seconds, *how):
    p = subprocess.run(
        [replay, model, str(seconds), *how], input="\n".join(map(str, list_of_sizes)), capture_output=True, text=True
    )
    if p.returncode:
        sys.exit(p.stderr)
    return float(p.stdout)


def where(ev):
    """us per token: the whole, nothing in flight, compute waits; waits per token."""
    passes = [e for e in ev if e["name"].startswith("pass")][3:]
    begin, end = passes[0]["ts"], passes[-1]["ts"] + passes[-1]["dur"]
    idle, until = 0.0, begin
    for a, b in sorted((e["ts"], e["ts"] + e["dur"]) for e in ev if e["pid"] == 1):
        idle += max(0.0, min(a, end) - until)
        until = max(until, b) if b > begin else until
    waits = [e["dur"] for e in ev if e["name"] == "waits for a read" and begin <= e["ts"] < end]
    return [(end - begin) / len(passes), idle / len(passes), sum(waits) / len(passes), len(waits) / len(passes)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("packed")
    p.add_argument("--modes", default="off,threshold=0")
    p.add_argument("--ram", default="least,10M")
    p.add_argument("--turns", type=int, default=5)
    p.add_argument("-n", type=int, default=80)
    p.add_argument("--seconds", type=float, default=0.3, help="of each run of the drive alone")
    p.add_argument("--trace", action="store_true")
    p.add_argument("--bin", default="ntx=" + os.environ.get("NTX_BIN", os.path.join(HERE, "../../build/bin")))
    p.add_argument("--replay", default=os.path.join(HERE, "../../build/bench/bench_replay"))
    p.add_argument("--options", default="")
    a = p.parse_args()
    bins, modes = dict(x.split("=") for x in a.bin.split(",")), a.modes.split(",")
    least = max(smallest(b, a.packed, ["--ffn-sparse", m, *a.options.split()]) for b in bins.values() for m in modes)
    jobs = {
        (b, m, r): (
            bins[b],
            a.packed,
            ["--ram", str(least) if r == "least" else r, "--ffn-sparse", m, *a.options.split()],
        )
        for r in a.ram.split(",")
        for m in modes
        for b in bins
    }
    of, runs = {k: sizes(*j) for k, j in jobs.items()}, {k: [] for k in jobs}
    for turn in range(a.turns):
        for k in list(jobs)[:: 1 if turn % 2 == 0 else -1]:
            around = [], []
            for first in (True, False):
                around[0].append(drive(a.replay, a.packed, of[k], a.seconds))
                around[1].append(drive(a.replay, a.packed, of[k], a.seconds, "1024", "look"))
                if first:
                    s = ntx(*jobs[k], a.n)
            runs[k].append((s, statistics.mean(around[0]), statistics.mean(around[1])))
    traced = {k: [where(events(*jobs[k], a.n)) for _ in range(2)] for k in jobs} if a.trace else {}
    print(
        "build,mode,ram,read_per_token,reads_per_token,tok_s,tok_s_min,tok_s_max,drive_gb_s,share,share_min,share_max,"
        "looked_gb_s,share_looked,share_looked_min,share_looked_max" + (",us,idle_us,wait_us,waits" if a.trace else "")
    )
    for k, r in runs.items():
        tok, s = [x[0]["decode_tok_s"] for x in r], r[-1][0]
        row = [
            *k[:2],
            least if k[2] == "least" else k[2],
            f"{s['bytes_read_per_token']:.0f}",
            f"{s['reads_per_token']:.0f}",
            f"{statistics.median(tok):.1f}",
            f"{min(tok):.1f}",
            f"{max(tok):.1f}",
        ]
        for which in (1, 2):
            share = [x[0]["decode_tok_s"] * x[0]["bytes_read_per_token"] / x[which] / 1e9 for x in r]
            row += [
                f"{statistics.median(x[which] for x in r):.2f}",
                f"{statistics.median(share):.3f}",
                f"{min(share):.3f}",
                f"{max(share):.3f}",
            ]
        row += [f"{statistics.mean(t[i] for t in traced[k]):.0f}" for i in range(4)] if a.trace else []
        print(*row, sep=",", flush=True)


if __name__ == "__main__":
    main()
