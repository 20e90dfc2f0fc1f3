#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks docs/glossary.md: row, group, pack, plan and sink have one meaning each in product code.

Names that once used one of these words in another meaning must not come back.
"""

import os
import re
import sys

SOURCE = os.environ["NTX_SOURCE"]
# Pattern that may not occur, places where it may, and the reason. A place (?!X) is everywhere but X.
WORDS = [
    (
        r"chunk_rows|SLICE_ROWS|ntx_share_rows|finite_rows|\bch->(row0|n_rows)|list\[[^][]*\]\.(row0|n_rows)",
        r"$",
        "what a matrix has are outputs (n_out, out0): a row is a batch's",
    ),
    (
        r"(?<!matrix )\b[Rr]ows?\b|\w_rows?\b|\brow_(?!bytes\b)|\bROWS?\b|_ROWS?\b",
        r"(?!client/(quantize|delta)/|model/mix|computed/weights/stream_(entries|impl)|computed/pass/weights_ram)",
        (
            "nothing that is done here knows a batch: a matrix has outputs, a table entries, a file matrix rows"
            " (row_bytes)"
        ),
    ),
    (
        (
            r"grams?[._](n_)?rows|\b(ask|more|keep|drop|copy|read)_rows\(|rows_there|row_query|_settings\.row\b|\brows?"
            r" of (the|a|its) (table|embedding)|\bembedding('s)? rows?\b"
        ),
        r"$",
        "a table has entries: a row is a batch's",
    ),
    (
        (
            r"\bstruct group\b|\bgroup_(fn|of_heads|memory)\b|GROUP_(TILE|PAD|LOADS)|router\.(n_)?groups|[Gg]roups? of"
            r" (values|heads|positions|tokens|threads|rows)\b"
        ),
        r"$",
        (
            "a group is of neurons of a packed model: heads that share K and V, an entry of a codebook, a batch, an"
            " expert group (expert_groups)"
        ),
    ),
    (
        r"\bntx_(?!_)\w+_(un)?pack\(|\bpack_(segment|row|block|message)|\b[Pp]acking\b",
        r"model/pack|computed/pass/ffn|client/(?!quantize|delta|doctor)",
        "a packed model is what ntx pack makes: messages are encoded and decoded, activations quantised",
    ),
    (
        r"\bplan_(tiles|fetch|region|chunks?)\b|_prefix_plan|\bstatic int plan\(",
        r"computed/engine/load\.c",
        "a plan is what of a model stays where: tiles are laid, types chosen, prefixes prepared",
    ),
    (r"[Ss]ink", r"cuda/|computed/(pass|state|sample|draft|ranks|cpu|gpu)/|model/", "a sink is attention's"),
]
rooms = [
    line.split("#")[0].split()[0] for line in open(os.path.join(SOURCE, "cmake", "rooms")) if line.split("#")[0].split()
]
bad, files = [], 0
for room in rooms:
    if room in ("circle", "library"):
        continue
    for name in sorted(os.listdir(os.path.join(SOURCE, room))):
        if not name.endswith((".c", ".h", ".cu")):
            continue
        files += 1
        place = "%s/%s" % (room, name)
        with open(os.path.join(SOURCE, room, name)) as f:
            text = f.read()
        # most files have none of these words, so that their lines need no look
        here = [(p, why) for p, but, why in WORDS if not re.match(but, place) and re.search(p, text)]
        for number, line in enumerate(text.split("\n") if here else (), 1):
            for pattern, why in here:
                found = re.search(pattern, line)
                if found:
                    bad.append("%s:%d: %s: %s" % (place, number, found.group(0), why))
if files < 100:
    bad.append("only %d files were looked at" % files)
print("\n".join(bad) or "%d files use their words in one meaning" % files)
sys.exit(1 if bad else 0)
