#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An agent's loop, with kept prefixes and without: time to first token. CSV. NTX_BIN: build/bin.

Each of 20 turns sends a preamble of 4000 tokens, all that was said before and 60 tokens more, and gets 20 tokens.
Without kept prefixes only every fifth turn is measured. The model is a small random one in RAM.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests/lib"))
from daemons import Daemons, make_model  # noqa: E402

TURNS, PREAMBLE, NEW, WRITTEN = 20, 4000, 60, 20
SHAPE = (
    "--layers",
    "8",
    "--embd",
    "768",
    "--ff",
    "2048",
    "--heads",
    "12",
    "--kv",
    "4",
    "--ctx",
    "8192",
    "--type",
    "Q8_0",
    "--seed",
    "5",
)


def ids(n, seed):
    return [3 + (seed * 7919 + i * i * 31 + i) % 250 for i in range(n)]


def turns(d, model, off):
    c, text = d.client(600), ids(PREAMBLE, 1)
    c.load(model, ctx=8192, no_prefix_cache=off, ram_bytes=1 << 30)
    for turn in range(TURNS):
        text = text + ids(NEW, 10 + turn)
        if off and turn % 5 and turn != TURNS - 1:
            text = text + [7] * WRITTEN
            continue
        a = c.ask(tokens=text, ignore_eos=True, max_tokens=WRITTEN, temp=0.0)
        s = json.loads(a.stats)
        print(
            "%s,%d,%d,%d,%.3f,%d"
            % ("without" if off else "with", turn + 1, len(text), a.cached, s["ttft_s"], s["passes"]),
            flush=True,
        )
        text = text + a.tokens
    c.close()


with tempfile.TemporaryDirectory(prefix="ntx-agent-") as tmp:
    model = make_model(os.path.join(tmp, "m.gguf"), *SHAPE)
    print("prefixes,turn,prompt_tokens,cached_tokens,ttft_s,passes")
    with Daemons() as d:
        for off in (0, 1):
            turns(d, model, off)
