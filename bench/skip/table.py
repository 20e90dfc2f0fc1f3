#!/usr/bin/env python3
"""What layer skip costs and saves on one model: off, static, predictive and random skipping, as CSV on standard output.

    bench/skip/table.py MODEL TEXT --sidecar FILE [--ram SIZE] [--link RATE] [--ring N] [--kv hole,propagate]
                        [--thresholds 0.9,0.7,...] [--static 0.5,0.3,...] [--most 512,2,1] [--adapt] [--range FIRST-LAST] [--questions FILE]

Each line is one run of `ntx perplexity` over the same windows: the scored half of each is fed token by token, so that perplexity, KL divergence from
`off`, layers skipped, bytes read and tokens per second come from the same tokens. Random skipping follows each predictive run, with
as many layers out of the same range. With --questions FILE each policy also answers `ntx eval`; since a prompt never skips, neither does
the first token of an answer: only answers of several tokens tell anything. Make the sidecar from another text than TEXT (ntx calibrate).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

NTX = os.path.join(os.environ.get("NTX_BIN", "build/bin"), "ntx")
COLUMNS = ["policy", "kv", "threshold", "layers_skipped", "bytes_per_token", "tok_s", "perplexity", "kl", "top1", "accuracy"]


def options(a, ctx):
    o = ["--ctx", str(a.ctx)] if ctx else []
    for name in ("ram", "ring", "chunk"):
        if getattr(a, name):
            o += ["--" + name, getattr(a, name)]
    return o + (["--link", "nvme=" + a.link] if a.link else [])


def run(*args):
    p = subprocess.run([NTX, *args, "--json"], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{' '.join(args)}: {p.stderr.strip()}")
    return json.loads(p.stdout.strip().splitlines()[-1])


def accuracy(a, skip):
    return run("eval", a.model, "--questions", a.questions, *options(a, False), *skip)["accuracy"] if a.questions else ""


def line(a, policy, kv, threshold, skip):
    skip = skip + (["--skip-kv", kv] if kv else [])
    base = ["--save-logits" if policy == "off" else "--kl", a.base]
    r = run("perplexity", a.model, a.text, *options(a, policy == "off"), *base, *skip)
    row = [policy, kv, threshold, r["skipped_layers_per_token"], r["bytes_read_per_token"], r["decode_tok_s"], r["perplexity"], r.get("kl_mean", 0.0), r.get("top1_agreement", 1.0),
           accuracy(a, skip)]
    print(",".join(f"{v:.5g}" if isinstance(v, float) and v < 1e6 else f"{v:.0f}" if isinstance(v, float) else str(v) for v in row), flush=True)
    return r


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("--sidecar", required=True)
    p.add_argument("--range", default="", help="layers that may be skipped, FIRST-LAST, for the random runs")
    p.add_argument("--ctx", default=256, type=int)
    p.add_argument("--ram")
    p.add_argument("--ring")
    p.add_argument("--chunk")
    p.add_argument("--link", help="emulated drive, bytes per second")
    p.add_argument("--questions")
    p.add_argument("--kv", default="hole,propagate")
    p.add_argument("--thresholds", default="0.95,0.9,0.8,0.7,0.5,0.3")
    p.add_argument("--most", default="512,2,1", help="layers in a row that predictive may skip")
    p.add_argument("--adapt", action="store_true", help="each predictive run also with --skip-adapt --skip-verify 16")
    p.add_argument("--static", help="thresholds of the static policy (default: those of --thresholds)")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as d:
        a.base = os.path.join(d, "base")
        table(a)


def table(a):
    print(",".join(COLUMNS), flush=True)
    line(a, "off", "", "", ["--skip", "script:1@4000000"])  # token by token like the others, and never skipping
    for kv in a.kv.split(","):
        for t in (a.static or a.thresholds).split(","):
            line(a, "static", kv, t, ["--skip", "static", "--sidecar", a.sidecar, "--skip-threshold", t])
        for t in a.thresholds.split(","):
            for most in a.most.split(","):
                learned = ["--skip", "predictive", "--sidecar", a.sidecar, "--skip-threshold", t, "--skip-max-consecutive", most]
                r = line(a, f"predictive max={most}", kv, t, learned)
                if a.range and r["skipped_layers_per_token"] > 0:
                    first, last = map(int, a.range.split("-"))
                    share = r["skipped_layers_per_token"] / (last - first + 1)
                    line(a, "random", kv, f"{share:.4f}", ["--skip", f"random:{share:.6f},{a.range}"])
                if a.adapt:
                    line(a, "the same adapt verify=16", kv, t, [*learned, "--skip-adapt", "--skip-verify", "16"])


if __name__ == "__main__":
    main()
