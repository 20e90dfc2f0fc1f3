#!/usr/bin/env python3
"""Prediction beside measurement, over ten configurations: median of five runs of `ntx bench` each.

    bench/predict/compare.py [--small] [--runs N] [--only NAME,...] [--dir DIR] [--fresh]

Makes its models with ntx-mkmodel in DIR (default: a temporary directory; on the drive to be measured; models that lie there already are used), has `ntx doctor`
measure the machine there into a profile of its own, before and after (the run is void if the drive's rate or the memory's moved by more than 10 %), and prints
CSV: what was predicted, what was measured, their ratio; at the end how many are within 10 %. Configurations run in turn, not run by run,
since a load drops nothing from the page cache that O_DIRECT would read. Use a quiet machine; all ten take about 6 minutes.
--only: some of them, by the beginning of their names, to measure in pieces. --small: models a tenth of the size, to try the script. --fresh: a profile for each
configuration, just before it: for a machine whose rates change within minutes (then nothing is void, and what `ntx doctor` found stands in each line)."""
import argparse
import json
import os
import subprocess
import sys
import tempfile

SHAPE = {False: ["--layers", "24", "--embd", "3072", "--ff", "8192", "--heads", "24", "--kv", "8", "--ctx", "2048"],
         True: ["--layers", "12", "--embd", "1536", "--ff", "4096", "--heads", "12", "--kv", "4", "--ctx", "2048"]}
# name, type, share of the file that --ram is (None: all), tokens of a run, further options
CONFIGURATIONS = [
    ("resident-q4km", "Q4_K_M", None, 32, []),
    ("resident-q4km-1-thread", "Q4_K_M", None, 24, ["--threads", "1"]),
    ("resident-q8", "Q8_0", None, 24, []),
    ("resident-q6k", "Q6_K", None, 24, []),
    ("ram-35-q4km", "Q4_K_M", 0.35, 10, []),
    ("ram-60-q4km", "Q4_K_M", 0.60, 12, []),
    ("ram-90-q4km", "Q4_K_M", 0.90, 24, []),
    ("ram-50-q8", "Q8_0", 0.50, 8, []),
    ("ram-60-q4km-1G", "Q4_K_M", 0.60, 8, ["--link", "nvme=1G"]),
    ("ram-60-q6k-500M", "Q6_K", 0.60, 5, ["--link", "nvme=500M"]),
]


def run(bin_, *args, env=None):
    r = subprocess.run([os.path.join(bin_, args[0]), *args[1:]], capture_output=True, text=True, env=env)
    if r.returncode:
        sys.exit(f"{' '.join(args)}: {r.stderr.strip()}")
    return r.stdout


def doctor(bin_, directory, env):
    p = json.loads(run(bin_, "ntx", "doctor", "--dir", directory, "--json", env=env))
    drive = next(r["gb_s"] for r in p["drive"]["reads"] if r["bytes"] == 524288)
    return drive, p["ram"]["gb_s"]


def measure(bin_, path, share, tokens, runs, extra, env):
    ram = [] if share is None else ["--ram", str(int(share * os.path.getsize(path)))]
    return json.loads(run(bin_, "ntx", "bench", path, "-p", "32", "-n", str(tokens), "-r", str(runs), "--ctx", "256", "--json", *ram, *extra, env=env))


def compare(o, bin_, directory, profile):
    env = dict(os.environ, XDG_CACHE_HOME=os.path.join(profile, "cache"))
    chosen = [c for c in CONFIGURATIONS if not o.only or any(c[0].startswith(n) for n in o.only.split(","))]
    models = {}
    for kind in sorted({c[1] for c in chosen}):
        models[kind] = os.path.join(directory, kind + ".gguf")
        if not os.path.exists(models[kind]):
            run(bin_, "ntx-mkmodel", *SHAPE[o.small], "--type", kind, models[kind])
    before = doctor(bin_, directory, env) if not o.fresh else (0, 0)
    if not o.fresh:
        print(f"# doctor before: drive {before[0]:.2f} GB/s, memory {before[1]:.1f} GB/s; load average {os.getloadavg()[0]:.1f}")
    print("configuration,limit,predicted_tok_s,measured_tok_s,measured_min,measured_max,measured/predicted,drive_gb_s,memory_gb_s", flush=True)
    good = 0
    for name, kind, share, tokens, extra in chosen:
        found = doctor(bin_, directory, env) if o.fresh else before
        j = measure(bin_, models[kind], share, tokens, o.runs, extra, env)
        ratio = j["decode_tok_s"] / j["predicted_tok_s"] if j["predicted_tok_s"] else 0
        good += abs(ratio - 1) <= 0.1
        print(f"{name},{j['limit']},{j['predicted_tok_s']:.3f},{j['decode_tok_s']:.3f},{j['decode_tok_s_min']:.3f},{j['decode_tok_s_max']:.3f},{ratio:.3f},{found[0]:.2f},{found[1]:.1f}", flush=True)
    if not o.fresh:
        after = doctor(bin_, directory, env)
        moved = max(abs(x / y - 1) for x, y in zip(after, before))
        print(f"# doctor after: drive {after[0]:.2f} GB/s, memory {after[1]:.1f} GB/s; moved by {moved * 100:.0f} %{': VOID' if moved > 0.1 else ''}")
    print(f"# {good} of {len(chosen)} within 10 %")


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--small", action="store_true")
    a.add_argument("--runs", type=int, default=5)
    a.add_argument("--only")
    a.add_argument("--dir")
    a.add_argument("--fresh", action="store_true")
    o = a.parse_args()
    bin_ = os.environ.get("NTX_BIN", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/bin"))
    with tempfile.TemporaryDirectory(prefix="ntx-predict-") as d:
        compare(o, bin_, o.dir or d, d)


if __name__ == "__main__":
    main()
