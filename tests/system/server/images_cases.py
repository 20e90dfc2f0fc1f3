# SPDX-License-Identifier: Apache-2.0
"""Models that see, texts with pictures, and llama.cpp's answers to them (tests/golden/sees.py).

A picture: columns and rows of its grid, and a seed. A square of the grid is 8 x 8 pixels."""

import json
import os
import struct
import subprocess
import sys
import zlib

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__)))), "lib"))
from gguf_edit import Gguf  # noqa: E402

ANSWER, EMBD, UNIT = 4, 64, 8
PLAIN = "--layers 3 --embd 64 --ff 96 --heads 2 --kv 1 --head-dim 48 --type F32 "
TEXTS = {
    "first": [(4, 3, 1), "what is it?"],
    "last": ["see this: ", (2, 5, 2)],
    "between": ["a picture ", (5, 4, 3), " of the sea"],
    "two": ["one ", (3, 3, 4), " and two ", (8, 1, 5), " end"],
    "joined": [(3, 3, 6), (2, 4, 7), "ok"],
}
# kind of projector: the model's options, its mark tokens, the most squares of a side, and the answers
MODELS = {
    "qwen3vl_merger": (
        "--arch qwen3vl --seed 5",
        ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>"),
        0,
        {
            "first": [56, 339, 149, 366],
            "last": [137, 10, 360, 534],
            "between": [174, 213, 476, 525],
            "two": [515, 210, 91, 478],
            "joined": [399, 81, 432, 310],
        },
    ),
    "qwen2vl_merger": (
        "--arch qwen2vl --head-dim 32 --seed 6",
        ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>"),
        0,
        {
            "first": [500, 73, 207, 493],
            "last": [267, 94, 46, 165],
            "between": [338, 410, 116, 459],
            "two": [160, 481, 275, 41],
            "joined": [206, 338, 26, 88],
        },
    ),
    "gemma3": (
        "--arch gemma3 --window 16 --seed 7",
        ("<start_of_image>", "<end_of_image>"),
        3,
        {
            "first": [144, 127, 349, 145],
            "last": [441, 72, 10, 478],
            "between": [108, 176, 447, 283],
            "two": [478, 339, 78, 54],
            "joined": [478, 339, 422, 357],
        },
    ),
    "deepseek4v": (  # mtmd gives no logits behind a picture's own rows
        "--arch deepseek4 --heads 4 --head-dim 64 --rotated 32 --q-lora 96 --o-parts 2 --o-lora 48 --window 16 "
        "--hashed 1 --index-heads 12 --experts 8 --experts-used 3 --expert-ff 96 --shared-ff 192 --biases --seed 11",
        (),
        0,
        {
            "first": [438, 85, 378, 118],
            "between": [296, 265, 297, 42],
            "two": [279, 492, 168, 312],
            "joined": [103, 498, 541, 497],
        },
    ),
    "mimovl": (
        "--arch mimo2 --heads 4 --kv 2 --value-dim 32 --window 16 --experts 8 --experts-used 3 --expert-ff 96 "
        "--seed 12",
        ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>"),
        0,
        {
            "first": [266, 365, 219, 339],
            "last": [317, 174, 292, 337],
            "between": [161, 362, 355, 415],
            "two": [107, 247, 242, 174],
            "joined": [26, 276, 351, 8],
        },
    ),
    "pixtral": (
        "--arch llama --seed 8",
        ("[IMG_BREAK]", "[IMG_END]"),
        3,
        {
            "first": [189, 476, 233, 22],
            "last": [189, 266, 77, 277],
            "between": [338, 344, 475, 181],
            "two": [44, 526, 233, 541],
            "joined": [380, 179, 80, 417],
        },
    ),
}


def texts_of(kind):
    return MODELS[kind][3]


def parts_of(kind, name):
    """With the largest pictures that the kind takes, if these are small: mtmd enlarges those below 8 squares."""
    most = MODELS[kind][2]
    return [p if isinstance(p, str) or not most else (most, most, p[2]) for p in TEXTS[name]]


def make(binaries, kind, text, projector):
    def run(options, path):
        subprocess.run([os.path.join(binaries, "ntx-mkmodel"), *options, path], check=True, stdout=subprocess.DEVNULL)

    run((PLAIN + MODELS[kind][0]).split(), text)
    run(["--arch", "mmproj-" + kind, "--embd", str(EMBD), "--seed", "3"], projector)
    g = Gguf(text)
    for i, mark in enumerate(MODELS[kind][1], 1):
        g.keys[b"tokenizer.ggml.tokens"][1][1][-i] = mark.encode()
        g.keys[b"tokenizer.ggml.token_type"][1][1][-i] = 3  # control
    line_end = Gguf(projector).tensors.get(b"v.token_embd.img_break")
    if line_end:  # llama.cpp takes it from there, and published files have the same values in both
        rows, n = g.tensors[b"token_embd.weight"][2], 4 * EMBD
        rows[len(rows) - n :] = line_end[2]
    g.write(text)


def load(client, kind, model, projector, **options):
    """The model and its projector, by these paths; what the daemon says of them."""
    files = [os.open(path, os.O_RDONLY) for path in (model, projector)]
    options = dict(dict(names=[kind], ctx=4096, ram_bytes=1 << 30, mmproj="mmproj.gguf", projector=1), **options)
    request = client.send("load", options, files)
    for f in files:
        os.close(f)
    return json.loads(client.until(request, "loaded")["info_json"])


def text_of(parts, mark=""):
    return "".join(p if isinstance(p, str) else mark for p in parts)


def pixels(columns, rows, seed):
    """Width, height, and 8-bit RGB row by row."""
    width, height = UNIT * columns, UNIT * rows
    rgb = bytes(
        (x * (13 + seed) + y * (7 + c) + 40 * c * seed) % 256
        for y in range(height)
        for x in range(width)
        for c in range(3)
    )
    return width, height, rgb


def png(picture):
    width, height, rgb = pixels(*picture)

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    raw = b"".join(b"\0" + rgb[3 * width * y : 3 * width * (y + 1)] for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
