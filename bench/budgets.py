#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode speed by memory budget, and the time to a first token from a cold start. CSV on standard output.

    bench/budgets.py MODEL.gguf [--shares 0.2,0.35,0.5,...] [--seconds 2] [--cold 3] [--part sweep,cold]
                     [-- OPTION...of ntx bench]

sweep: `ntx bench` with --ram from the smallest budget that the model accepts up to all, then down again, so that both
runs of a budget are far apart in time; each decodes for about --seconds (one row, context 256). A cliff is a budget
whose better run is over 5 % slower than the better one of the budget before.

cold: the file is dropped from the page cache, then `ntx run -n 1` with everything in RAM, timed from exec to exit, with
fio before and after each. Printed: the host tier's bytes over the whole time, and over that time less the first token's
and less that of the same run with mkmodel's smallest model (processes, kernels' first pages). A run before each does
not count, since a hypervisor takes back memory that its guest leaves free, and returned it at 0.3 to 0.6 GB/s where
this was written.

Needs root and fio (as bench/drive_share.py, whose fio code this uses).
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from drive_share import FIO, HUGE, fio

BIN = os.environ.get("NTX_BIN", "build/bin")
MIB = 1 << 20


def ntx(*args):
    return subprocess.run([os.path.join(BIN, "ntx"), *args], capture_output=True, text=True)


def bench(model, ram, tokens, extra):
    p = ntx(
        "bench",
        model,
        "-p",
        "1",
        "-n",
        str(tokens),
        "-r",
        "1",
        "--ctx",
        "256",
        "--json",
        *(["--ram", str(ram)] if ram else []),
        *extra,
    )
    return json.loads(p.stdout) if not p.returncode else sys.exit(p.stderr.strip())


def smallest(model, extra):
    """As the refusal names it."""
    said = re.search(
        r"budget that would do is [^(]*\((\d+) bytes\)",
        ntx("bench", model, "-p", "1", "-n", "1", "--ctx", "256", "--ram", "1M", *extra).stderr,
    )
    return int(said[1]) if said else sys.exit("a budget of 1 MiB was not refused")


def best_fio(path):
    return max(fio(path, bs, depth, 1) for bs, depth in FIO[1:3])


def sweep(a, extra):
    size = os.path.getsize(a.model)
    budgets = [smallest(a.model, extra), *(int(float(s) * size) for s in a.shares.split(",")), None]
    runs = {b: [] for b in budgets}
    print("ram,share_of_file,streamed_share,tok_s_up,tok_s_down,bytes_per_token,gb_s,predicted_tok_s,limit,fio_gb_s")
    drive = {}
    for b in budgets + budgets[::-1]:
        drive.setdefault(b, []).append(best_fio(a.model))
        rate = runs[b][0]["decode_tok_s"] if runs[b] else bench(a.model, b, 2, extra)["decode_tok_s"]
        runs[b].append(bench(a.model, b, max(int(a.seconds * rate), 3), extra))
    last = 0
    for b in budgets:
        up, down = runs[b]
        rates = up["decode_tok_s"], down["decode_tok_s"]
        best = up if rates[0] > rates[1] else down
        print(
            "%s,%.2f,%.3f,%.3f,%.3f,%.0f,%.2f,%.3f,%s,%.2f%s"
            % (
                b or "all",
                (b or size) / size,
                best["bytes_storage"] / best["bytes_model"],
                *rates,
                best["bytes_read_per_token"],
                best["io_gb_s"],
                best["predicted_tok_s"],
                best["limit"],
                max(drive[b]),
                ",CLIFF" if max(rates) < 0.95 * last else "",
            ),
            flush=True,
        )
        last = max(rates)


def once(model):
    t = time.monotonic()
    p = ntx("run", model, "a", "--raw", "-n", "1", "--temp", "0", "--json")
    if p.returncode:
        sys.exit(p.stderr.strip())
    return time.monotonic() - t, json.loads(p.stdout.strip().splitlines()[-1])["stats"]


def drop(path):
    f = os.open(path, os.O_RDONLY)
    os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(f)


def cold(a):
    print("run,fio_before,seconds,ttft_s,bytes_host,gb_s,gb_s_of_the_load,fio_after")
    with tempfile.TemporaryDirectory() as d:
        tiny = os.path.join(d, "tiny.gguf")
        subprocess.run(
            [
                os.path.join(BIN, "ntx-mkmodel"),
                "--layers",
                "1",
                "--embd",
                "256",
                "--ff",
                "256",
                "--heads",
                "4",
                "--kv",
                "4",
                "--type",
                "Q8_0",
                tiny,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        for i in range(a.cold):
            before, start = best_fio(a.model), once(tiny)
            once(a.model)  # not counted
            drop(a.model)
            seconds, stats = once(a.model)
            host, load = stats["bytes_host"], seconds - stats["ttft_s"] - (start[0] - start[1]["ttft_s"])
            print(
                "%d,%.2f,%.3f,%.3f,%d,%.2f,%.2f,%.2f"
                % (
                    i + 1,
                    before,
                    seconds,
                    stats["ttft_s"],
                    host,
                    host / seconds / 1e9,
                    host / load / 1e9,
                    best_fio(a.model),
                ),
                flush=True,
            )


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--shares", default="0.1,0.25,0.4,0.55,0.7,0.8,0.9,0.95,1")
    p.add_argument("--seconds", type=float, default=2)
    p.add_argument("--cold", type=int, default=3)
    p.add_argument("--part", default="sweep,cold")
    argv = sys.argv[1:]
    cut = argv.index("--") if "--" in argv else len(argv)
    a, extra = p.parse_args(argv[:cut]), argv[cut + 1 :]
    old = open(HUGE).read()
    open(HUGE, "w").write("16")
    try:
        if "sweep" in a.part:
            sweep(a, extra)
        if "cold" in a.part:
            cold(a)
    finally:
        open(HUGE, "w").write(old)


if __name__ == "__main__":
    main()
