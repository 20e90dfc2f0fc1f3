#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the types that `ntx quantize` chooses for each tensor with llama.cpp's quantiser; run by hand.

  peer.py NTX LLAMA_QUANTIZE MODEL... [--imatrix FILE]    (MODEL in F16 or F32)
"""

import os
import re
import subprocess
import sys
import tempfile

MIXES = (
    "F16 BF16 Q8_0 Q6_K Q5_K_M Q5_K_S Q5_1 Q5_0 Q4_K_M Q4_K_S Q4_1 Q4_0 IQ4_NL IQ4_XS Q3_K_L Q3_K_M Q3_K_S IQ3_M IQ3_S"
    " IQ3_XS IQ3_XXS Q2_K Q2_K_S IQ2_M IQ2_S IQ2_XS IQ2_XXS IQ1_M IQ1_S TQ2_0 TQ1_0 MXFP4_MOE Q2_0 Q1_0"
).split()


def ntx(tool, model, mix, more):
    out = subprocess.run(
        [tool, "quantize", model, os.path.join(tempfile.gettempdir(), "none.gguf"), mix, "--dry-run", *more],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return {w[0]: w[2] for w in (line.split() for line in out.splitlines()) if len(w) == 3 and "." in w[0]}


def peer(tool, model, mix, more):
    r = subprocess.run(
        [tool, *more, "--dry-run", model, os.path.join(tempfile.gettempdir(), "none.gguf"), mix],
        capture_output=True,
        text=True,
    )
    types = {}
    for line in (r.stdout + r.stderr).splitlines():
        m = re.match(r"\[ *\d+/ *\d+\] (\S+) .*type = *(\w+), size = .*?(?:-> .*\((\w+)\))?$", line)
        if m:
            types[m[1]] = (m[3] or m[2]).upper()
    return types


def main():
    args = sys.argv[1:]
    more = []
    if "--imatrix" in args:
        at = args.index("--imatrix")
        more = args[at : at + 2]
        del args[at : at + 2]
    bad = n = 0
    for model in args[2:]:
        for mix in MIXES:
            a, b = ntx(args[0], model, mix, more), peer(args[1], model, mix, more)
            for name in sorted(set(a) | set(b)):
                n += 1
                if a.get(name) != b.get(name):
                    bad += 1
                    print(model, mix, name, a.get(name), b.get(name))
    print("%d of %d tensors differ" % (bad, n))
    return bad > 0 or n == 0


sys.exit(main())
