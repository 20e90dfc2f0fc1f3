#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prediction beside measurement, over ten configurations (or ten of models under 1 GB): medians of five.

    bench/predict/compare.py [--small | --light] [--runs N] [--close S] [--only NAME,...] [--dir DIR] [--rounds FILE]

Makes its models with ntx-mkmodel in DIR (default: a temporary directory; on the drive to be measured; models that are
there already are used). A round is `ntx doctor`, whose profile of that moment predicts, and then `ntx bench -r 1` of
each configuration in turn (in reverse in every other round), which measures, so that both see about the same state of a
machine whose drive and memory change within minutes. CSV, for each configuration over N rounds: the medians of
predicted and measured values; the median of the rounds' ratios, measured over predicted; the ratio of the two medians;
the lowest and highest of both; what was read, and doctor's rates. At the end: how many are within 10 % by either, and
within 15 %; each round on stderr. Use a quiet machine; all ten take 8 minutes. A load drops nothing from the page cache
that O_DIRECT would read.

  --light   ten others: models of 0.3 to 0.9 GB with a third, half and all of their bytes in memory (a minute per round)
  --close   a doctor of S seconds before each configuration, and no other: where rates change within seconds
  --only    some of them, by the beginning of their names or a whole name and '$'
  --small   models a tenth of the size, to try the script
  --rounds  appends rounds to FILE and reports on all in it, so that it can be measured in parts (--runs 1 five times)
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile


def shape(layers, embd, ff, heads, kv):
    return [
        "--layers",
        str(layers),
        "--embd",
        str(embd),
        "--ff",
        str(ff),
        "--heads",
        str(heads),
        "--kv",
        str(kv),
        "--ctx",
        "2048",
    ]


SHAPES = {
    "": shape(24, 3072, 8192, 24, 8),
    "small": shape(12, 1536, 4096, 12, 4),
    "300m": shape(16, 1536, 5376, 24, 8),
    "700m": shape(20, 2048, 8192, 32, 8),
}
# name, type and shape, share of the file that --ram is (None: all), tokens of a run, further options
CONFIGURATIONS = [
    ("resident-q4km", "Q4_K_M", None, 64, []),
    ("resident-q4km-1-thread", "Q4_K_M", None, 48, ["--threads", "1"]),
    ("resident-q8", "Q8_0", None, 48, []),
    ("resident-q6k", "Q6_K", None, 48, []),
    ("ram-35-q4km", "Q4_K_M", 0.35, 10, []),
    ("ram-60-q4km", "Q4_K_M", 0.60, 12, []),
    ("ram-90-q4km", "Q4_K_M", 0.90, 24, []),
    ("ram-50-q8", "Q8_0", 0.50, 8, []),
    ("ram-60-q4km-1G", "Q4_K_M", 0.60, 8, ["--link", "nvme=1G"]),
    ("ram-60-q6k-500M", "Q6_K", 0.60, 5, ["--link", "nvme=500M"]),
]
LIGHT = [
    ("300m-third-q4km", "Q4_K_M 300m", 0.33, 40, []),
    ("300m-half-q4km", "Q4_K_M 300m", 0.50, 48, []),
    ("300m-all-q4km", "Q4_K_M 300m", None, 200, []),
    ("300m-half-q8", "Q8_0 300m", 0.50, 24, []),
    ("700m-third-q4km", "Q4_K_M 700m", 0.33, 16, []),
    ("700m-half-q4km", "Q4_K_M 700m", 0.50, 20, []),
    ("700m-60-q4km", "Q4_K_M 700m", 0.60, 24, []),
    ("700m-all-q4km", "Q4_K_M 700m", None, 80, []),
    ("700m-third-q5km", "Q5_K_M 700m", 0.33, 14, []),
    ("small-third-q8", "Q8_0 small", 0.33, 40, []),
]


def run(bin_, *args, env=None):
    r = subprocess.run([os.path.join(bin_, args[0]), *args[1:]], capture_output=True, text=True, env=env)
    if r.returncode:
        sys.exit(f"{' '.join(args)}: {r.stderr.strip()}")
    return r.stdout


def doctor(bin_, directory, seconds, env):
    p = json.loads(run(bin_, "ntx", "doctor", "--dir", directory, "--seconds", str(seconds), "--json", env=env))
    drive, stream = (next(r["gb_s"] for r in p["drive"][k] if r["bytes"] == 524288) for k in ("reads", "streams"))
    return {"drive": drive, "stream": stream, "memory": p["ram"]["gb_s"]}


def bench(bin_, path, share, tokens, extra, env):
    ram = [] if share is None else ["--ram", str(int(share * os.path.getsize(path)))]
    return json.loads(
        run(
            bin_,
            "ntx",
            "bench",
            path,
            "-p",
            "32",
            "-n",
            str(tokens),
            "-r",
            "1",
            "--ctx",
            "256",
            "--json",
            *ram,
            *extra,
            env=env,
        )
    )


def make_models(o, bin_, directory, kinds):
    models = {kind: os.path.join(directory, kind.replace(" ", "-") + ".gguf") for kind in kinds}
    for kind, path in models.items():
        type_, _, size = kind.partition(" ")
        if not os.path.exists(path):
            run(bin_, "ntx-mkmodel", *SHAPES[size or ("small" if o.small else "")], "--type", type_, path)
    return models


def report(chosen, rows):
    good, fair = [0, 0], 0
    print(
        "configuration,limit,predicted_tok_s,measured_tok_s,median_of_ratios,ratio_of_medians,"
        "predicted_min,predicted_max,measured_min,measured_max,io_gb_s,drive_gb_s,multiplied_gb_s,memory_gb_s"
    )
    for name, *_ in chosen:
        r = rows[name]
        p, m = [x["predicted_tok_s"] for x in r], [x["decode_tok_s"] for x in r]
        predicted, measured, io, drive, stream, memory = map(
            statistics.median, (p, m, *([x[k] for x in r] for k in ("io_gb_s", "drive", "stream", "memory")))
        )
        ratios = statistics.median(a / b if b else 0 for a, b in zip(m, p)), measured / predicted if predicted else 0
        good = [n + (abs(x - 1) <= 0.1) for n, x in zip(good, ratios)]
        fair += abs(ratios[0] - 1) <= 0.15
        print(
            f"{name},{r[-1]['limit']},{predicted:.3f},{measured:.3f},{ratios[0]:.3f},{ratios[1]:.3f},"
            f"{min(p):.3f},{max(p):.3f},{min(m):.3f},{max(m):.3f},{io:.2f},{drive:.2f},{stream:.2f},{memory:.1f}"
        )
    print(
        f"# {good[0]} of {len(chosen)} within 10 % by the median of ratios, {good[1]} by the ratio of medians; {fair}"
        " within 15 % by the median of ratios"
    )


def compare(o, bin_, directory, profile):
    env = dict(os.environ, XDG_CACHE_HOME=os.path.join(profile, "cache"))
    asked = o.only.split(",") if o.only else [""]
    chosen = [c for c in (LIGHT if o.light else CONFIGURATIONS) if any((c[0] + "$").startswith(n) for n in asked)]
    models = make_models(o, bin_, directory, sorted({c[1] for c in chosen}))
    rows = {c[0]: [] for c in chosen}
    if o.rounds and os.path.exists(o.rounds):
        for r in map(json.loads, open(o.rounds)):
            rows.setdefault(r["configuration"], []).append(r)
    done = max(map(len, rows.values()))
    for i in range(done, done + o.runs):
        found = None if o.close else doctor(bin_, directory, 18, env)
        for name, kind, share, tokens, extra in chosen[:: -1 if i % 2 else 1]:
            if o.close:
                found = doctor(bin_, directory, o.close, env)
            r = {"configuration": name, **bench(bin_, models[kind], share, tokens, extra, env), **found}
            rows[name].append(r)
            print(
                f"{name}: {r['predicted_tok_s']:.3f} predicted, {r['decode_tok_s']:.3f} measured; read at"
                f" {r['io_gb_s']:.2f}, doctor: drive {r['drive']:.2f}, multiplied {r['stream']:.2f}, memory"
                f" {r['memory']:.1f} GB/s",
                file=sys.stderr,
            )
            if o.rounds:
                with open(o.rounds, "a") as f:
                    print(json.dumps(r), file=f)
    report(chosen, rows)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("--small", action="store_true")
    a.add_argument("--light", action="store_true")
    a.add_argument("--close", type=float)
    a.add_argument("--runs", type=int, default=5)
    a.add_argument("--only")
    a.add_argument("--dir")
    a.add_argument("--rounds")
    o = a.parse_args()
    bin_ = os.environ.get("NTX_BIN", os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build/bin"))
    with tempfile.TemporaryDirectory(prefix="ntx-predict-") as d:
        compare(o, bin_, o.dir or d, d)


if __name__ == "__main__":
    main()
