# SPDX-License-Identifier: Apache-2.0
"""Texts with pictures, and llama.cpp's answers to them (tests/golden/sees.py). A picture: width, height, seed."""

ANSWER, EMBD = 5, 64
MODEL = "--arch qwen3vl --layers 3 --embd 64 --ff 96 --heads 2 --kv 1 --head-dim 48 --type F32 --seed 5".split()
CASES = (
    ("first", [(128, 96, 1), "what is it?"], [107, 508, 2, 310, 429]),
    ("last", ["see this: ", (64, 160, 2)], [415, 432, 288, 143, 117]),
    ("between", ["a picture ", (160, 128, 3), " of the sea"], [527, 15, 15, 15, 15]),
    ("two", ["one ", (96, 96, 4), " and two ", (256, 32, 5), " end"], [515, 56, 491, 255, 65]),
    ("joined", [(96, 96, 6), (64, 128, 7), "ok"], [183, 337, 21, 293, 374]),
)


def text_of(parts, mark=""):
    return "".join(p if isinstance(p, str) else mark for p in parts)
