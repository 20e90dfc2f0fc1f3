#!/usr/bin/env python3
"""trace_cost.py MODEL WITHOUT_BIN WITH_BIN [ROUNDS]: what the trace costs, in turn (A B C C B A ...): WITHOUT_BIN holds programs built with
ntx_traced (shm/counters.h) made empty, WITH_BIN as they are; the third arm also records (--trace). CSV of decode rates, then medians."""
import json
import os
import statistics
import subprocess
import sys
import tempfile


def rate(binary, model, trace, tmp):
    stats = os.path.join(tmp, "s.json")
    cmd = [os.path.join(binary, "ntx"), "run", model, "Once upon a time", "--raw", "--ignore-eos", "--temp", "0", "-n", "400", "--ctx", "512", "--ram", "200M", "--quiet", "--stats", stats]
    subprocess.run(cmd + (["--trace", os.path.join(tmp, "t.json")] if trace else []), check=True, stdout=subprocess.DEVNULL)
    return json.load(open(stats))["decode_tok_s"]


def main():
    model, without, as_is = sys.argv[1:4]
    arms = [("none", without, False), ("ring", as_is, False), ("recorded", as_is, True)]
    got = {name: [] for name, *_ in arms}
    with tempfile.TemporaryDirectory() as tmp:
        for i in range(int(sys.argv[4]) if len(sys.argv) > 4 else 10):
            for name, binary, trace in arms if i % 2 else arms[::-1]:
                got[name].append(rate(binary, model, trace, tmp))
                print("%d,%s,%.1f" % (i, name, got[name][-1]), flush=True)
    base = got["none"]
    for name, rates in got.items():
        ratios = [a / b for a, b in zip(rates, base)]
        print("%s: median %.1f tok/s, best %.1f; of the rate without, round by round: median %.4f, from %.3f to %.3f" %
              (name, statistics.median(rates), max(rates), statistics.median(ratios), min(ratios), max(ratios)))


main()
