#!/usr/bin/env python3
"""trace_cost.py MODEL WITHOUT_BIN WITH_BIN [ROUNDS]: what the trace costs, in turn (A B C C B A ...): WITHOUT_BIN holds programs built with
ntx_traced (shm/counters.h) made empty, WITH_BIN as they are; the third arm also records (--trace). CSV of decode rates and CPU seconds (of all
four processes, load included), then each arm against the first, round by round. On a busy machine only the CPU seconds say anything."""
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile


def rate(binary, model, trace, tmp):
    stats = os.path.join(tmp, "s.json")
    cmd = [os.path.join(binary, "ntx"), "run", model, "Once upon a time", "--raw", "--ignore-eos", "--temp", "0", "-n", "400", "--ctx", "512", "--ram", "200M", "--quiet", "--stats", stats]
    used = lambda: sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    before = used()
    subprocess.run(cmd + (["--trace", os.path.join(tmp, "t.json")] if trace else []), check=True, stdout=subprocess.DEVNULL)
    return json.load(open(stats))["decode_tok_s"], used() - before


def main():
    model, without, as_is = sys.argv[1:4]
    arms = [("none", without, False), ("ring", as_is, False), ("recorded", as_is, True)]
    got = {name: [] for name, *_ in arms}
    with tempfile.TemporaryDirectory() as tmp:
        for i in range(int(sys.argv[4]) if len(sys.argv) > 4 else 10):
            for name, binary, trace in arms if i % 2 else arms[::-1]:
                got[name].append(rate(binary, model, trace, tmp))
                print("%d,%s,%.1f,%.4f" % (i, name, *got[name][-1]), flush=True)
    for name, runs in got.items():
        for k, what in enumerate(("tok/s", "CPU s")):
            ratios = [a[k] / b[k] for a, b in zip(runs, got["none"])]
            print("%s: median %.4g %s; against none: median %.4f, quartiles %.3f to %.3f" %
                  (name, statistics.median(r[k] for r in runs), what, statistics.median(ratios), *statistics.quantiles(ratios, n=4)[::2]))


main()
