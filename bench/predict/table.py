#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The table of predictions of docs/performance.md, in Markdown: bench/predict/table.py

Models that this machine cannot hold, on other machines. ~: nobody measured the GPU's rates (they are those of
computed/plan/estimates.h). A column from a profile that `ntx doctor` wrote has measured rates, and so no ~.
"""

import json, os, subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
NTX = os.path.join(os.environ.get("NTX_BIN", os.path.join(HERE, "../../build/bin")), "ntx")
MACHINES = [
    ("rtx3090-pcie3x8", "RTX 3090, PCIe 3 x8, 48 GB DDR4, 3.35 GB/s drive"),
    ("rtx4090-ddr5-pcie4", "RTX 4090, PCIe 4 x16, 64 GB DDR5, 7 GB/s drive"),
    ("desktop-ddr4", "no GPU, 32 GB DDR4, 3.3 GB/s drive"),
    ("h200-host", "H200, 512 GB"),
]
MODELS = [
    ("llama-70b@q4_k_m", "Llama-70B Q4_K_M"),
    ("llama-70b@q6_k", "Llama-70B Q6_K"),
    ("mixtral-8x7b@q4_k_m", "Mixtral 8x7B Q4_K_M"),
    ("qwen3-235b-a22b@q4_k_m", "Qwen3-235B-A22B Q4_K_M"),
    ("gpt-oss-120b@mxfp4", "gpt-oss-120b MXFP4"),
]

print("| model | " + " | ".join(m[1] for m in MACHINES) + " |\n|---" * 1 + "|---" * len(MACHINES) + "|")
for model, title in MODELS:
    cells = []
    for machine, _ in MACHINES:
        j = json.loads(
            subprocess.check_output([NTX, "plan", model, "--profile", f"{HERE}/../profiles/{machine}.json", "--json"])
        )
        d = j["decode"]
        cells.append(f"{'~' if d['gpu_estimated'] else ''}{d['tok_s']:.3g} ({d['limit']})")
    print(f"| {title} | " + " | ".join(cells) + " |")
