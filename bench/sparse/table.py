#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What --ffn-sparse costs and saves on one packed model, as CSV on standard output.

    bench/sparse/table.py PACKED --modes off,topk=0.5,... [--ram SIZE] [--link RATE] [-n N] [--repeat R]
                          [--text FILE] [--questions FILE] [--skip POLICY]

Each line is one mode: shares of neurons and groups that a token used; bytes read per token (after rounding to blocks),
those that the used groups outside of RAM should take, and those of groups between them; tokens per second (median of R
runs of N greedy tokens, the modes in turn). With --text also perplexity and KL divergence from the first mode, with
--questions the share of exact answers. `used` is printed only if all but the groups stays in RAM (the ring then reads
nothing).
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

NTX = os.path.join(os.environ.get("NTX_BIN", "build/bin"), "ntx")
COLUMNS = [
    "mode",
    "neurons",
    "groups",
    "read_per_token",
    "used_per_token",
    "between_per_token",
    "tok_s",
    "tok_s_min",
    "tok_s_max",
    "io_gb_s",
    "stall_share",
    "perplexity",
    "kl",
    "top1",
    "accuracy",
]


def ntx(*args):
    p = subprocess.run([NTX, *args], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{' '.join(args)}: {p.stderr.strip()}")
    return p.stdout


def machine(a):
    o = ["--quiet"]
    for name in ("ram", "chunk", "skip"):
        if getattr(a, name):
            o += ["--" + name, getattr(a, name)]
    return o + (["--link", "nvme=" + a.link] if a.link else [])


def rate(a, mode):
    with tempfile.NamedTemporaryFile() as f:
        ntx(
            "run",
            a.model,
            a.prompt,
            "--raw",
            "-n",
            str(a.n),
            "--ignore-eos",
            "--temp",
            "0",
            "--ctx",
            str(a.ctx),
            "--ffn-sparse",
            mode,
            "--stats",
            f.name,
            *machine(a),
        )
        return json.load(open(f.name))


def quality(a, mode, base, first):
    out = ["", "", "", ""]
    if a.text:
        kl = ["--save-logits" if first else "--kl", base]
        r = json.loads(
            ntx(
                "perplexity", a.model, a.text, "--ctx", str(a.ctx), "--ffn-sparse", mode, "--json", *kl, *machine(a)
            ).splitlines()[-1]
        )
        out[:3] = r["perplexity"], r.get("kl_mean", 0.0), r.get("top1_agreement", 1.0)
    if a.questions:
        out[3] = json.loads(
            ntx("eval", a.model, "--questions", a.questions, "--ffn-sparse", mode, "--json", *machine(a)).splitlines()[
                -1
            ]
        )["accuracy"]
    return out


def show(v):
    return str(v) if not isinstance(v, float) else f"{v:.0f}" if v >= 1e5 else f"{v:.4g}"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--modes", required=True)
    p.add_argument("--prompt", default="Once upon a time")
    for name in ("ram", "link", "chunk", "skip", "text", "questions"):
        p.add_argument("--" + name)
    p.add_argument("--ctx", default=256, type=int)
    p.add_argument("-n", default=16, type=int)
    p.add_argument("--repeat", default=3, type=int)
    a = p.parse_args()
    modes = a.modes.split(",")
    runs = {m: [] for m in modes}
    for turn in range(a.repeat):
        for m in modes if turn % 2 == 0 else modes[::-1]:
            runs[m].append(rate(a, m))
    print(",".join(COLUMNS))
    with tempfile.TemporaryDirectory() as d:
        for i, m in enumerate(modes):
            s = runs[m][-1]
            tok = [r["decode_tok_s"] for r in runs[m]]
            groups, between = s.get("active_groups", 1.0), s.get("ffn_bytes_between_per_token", 0.0)
            row = [
                m,
                s.get("active_neurons", 1.0),
                groups,
                s["bytes_read_per_token"],
                groups * s["bytes_storage"],
                between,
                statistics.median(tok),
                min(tok),
                max(tok),
                s["io_gb_s"],
                s["io_stall_s"] / max(s["io_stall_s"] + s["compute_s"], 1e-9),
                *quality(a, m, os.path.join(d, "base"), not i),
            ]
            print(",".join(map(show, row)), flush=True)


if __name__ == "__main__":
    main()
