#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do a token's bytes and time fall in proportion to the skipped layers? CSV on standard output.

    bench/skip/scripted.py MODEL --ram SIZE [--counts 4,8,16,24] [--ctx N] [--tokens N] [--link RATE]

With a scripted policy, so a model of any weights will do. `off` comes first, in between and last. Each other line skips
so many layers, evenly spaced over those after the first two, for every written token, with holes in KV: such a layer
causes no reads at all, except those under way before the decision (wasted). The run fails if the bytes read per token
differ by more than 3 % from those of the remaining layers and the wasted ones.
"""

import argparse
import json
import os
import re
import subprocess
import sys

NTX = os.path.join(os.environ.get("NTX_BIN", "build/bin"), "ntx")
COLUMNS = [
    "skipped",
    "of",
    "bytes_per_token",
    "share",
    "expected_share",
    "tok_s",
    "times_off",
    "io_gb_s",
    "stall_s",
    "early_chunks",
    "late_chunks",
    "wasted_bytes",
]


def ntx(*args):
    p = subprocess.run([NTX, *args, "--json"], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{' '.join(args)}: {p.stderr.strip()}")
    return json.loads(p.stdout)


def bytes_by_layer(model):
    """Of what a pass reads: layers by number, the output matrix as None."""
    sizes = {}
    tensors = ntx("inspect", model)["tensors"]
    output = "output.weight" if any(t["name"] == "output.weight" for t in tensors) else "token_embd.weight"
    for t in tensors:
        block = re.match(r"blk\.(\d+)\.", t["name"])
        if block or t["name"] == output:
            key = int(block[1]) if block else None
            sizes[key] = sizes.get(key, 0) + t["bytes"]
    return sizes


def measure(a, layers):
    skip = ["--skip", "script:" + ",".join(map(str, layers))] if layers else []
    link = ["--link", "nvme=" + a.link] if a.link else []
    return ntx(
        "bench", a.model, "-p", "1", "-n", str(a.tokens), "-r", "1", "--ctx", str(a.ctx), "--ram", a.ram, *link, *skip
    )


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("--ram", required=True)
    p.add_argument("--counts", default="4,8,16,24")
    p.add_argument("--ctx", default=256, type=int)
    p.add_argument("--tokens", default=6, type=int)
    p.add_argument("--link")
    a = p.parse_args()
    sizes = bytes_by_layer(a.model)
    n_layers, total = len(sizes) - (None in sizes), sum(sizes.values())
    counts = [int(c) for c in a.counts.split(",")]
    middle = len(counts) // 2
    off, failed = None, []
    print(",".join(COLUMNS), flush=True)
    for n in [0, *counts[:middle], 0, *counts[middle:], 0]:
        layers = [2 + i * (n_layers - 2) // n for i in range(n)]
        r = measure(a, layers)
        if not n:
            off = r
        share, times = r["bytes_read_per_token"] / off["bytes_read_per_token"], r["decode_tok_s"] / off["decode_tok_s"]
        expected = 1 - sum(sizes[l] for l in layers) / total
        wasted = r.setdefault("skip_wasted_bytes", 0) / (a.tokens - 1) / off["bytes_read_per_token"]
        if not expected - 0.03 <= share <= expected + wasted + 0.03:
            failed.append(f"{n} layers: {share:.3f} of the bytes, expected {expected:.3f}")
        row = [
            n,
            n_layers,
            r["bytes_read_per_token"],
            share,
            expected,
            r["decode_tok_s"],
            times,
            r["io_gb_s"],
            r["io_stall_s"],
            r.get("skip_early_chunks", 0),
            r.get("skip_late_chunks", 0),
            r["skip_wasted_bytes"],
        ]
        print(",".join(f"{v:.4g}" if isinstance(v, float) and v < 1e6 else f"{v:.0f}" for v in row), flush=True)
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main()
