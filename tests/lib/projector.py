# SPDX-License-Identifier: Apache-2.0
"""A small random projector file (mmproj) like those of Qwen3-VL, and pictures, in the standard library."""

import struct
import zlib

from gguf_edit import ARR, BOOL, F32, STR, U32, Gguf

WIDTH, FFN, HEADS, PATCH, SIDE, DEEP = 16, 24, 2, 16, 4, 1  # DEEP: the layer that leaves a deep state


def floats(seed, n, spread, middle=0.0):
    """n numbers about `middle`, the same for a seed."""
    x, out = seed * 2654435761 % 2**32, []
    for _ in range(n):
        x = (x * 1664525 + 1013904223) % 2**32
        out.append(middle + spread * (x / 2**31 - 1))
    return out


def make_projector(path, embd, layers=3):
    """For a text model of width embd."""
    g = Gguf.__new__(Gguf)
    g.version, g.keys, g.tensors = 3, {}, {}
    for name, kind, value in (
        ("general.architecture", STR, "clip"),
        ("general.type", STR, "mmproj"),
        ("clip.has_vision_encoder", BOOL, True),
        ("clip.projector_type", STR, "qwen3vl_merger"),
        ("clip.use_gelu", BOOL, True),
        ("clip.vision.projection_dim", U32, embd),
        ("clip.vision.image_size", U32, SIDE * PATCH),
        ("clip.vision.patch_size", U32, PATCH),
        ("clip.vision.embedding_length", U32, WIDTH),
        ("clip.vision.feed_forward_length", U32, FFN),
        ("clip.vision.block_count", U32, layers),
        ("clip.vision.attention.head_count", U32, HEADS),
        ("clip.vision.attention.layer_norm_epsilon", F32, 1e-6),
        ("clip.vision.spatial_merge_size", U32, 2),
        ("clip.vision.image_mean", ARR, (F32, [0.5] * 3)),
        ("clip.vision.image_std", ARR, (F32, [0.5] * 3)),
        ("clip.vision.is_deepstack_layers", ARR, (BOOL, [i == DEEP for i in range(layers)])),
    ):
        g.keys[name] = (kind, value)

    def add(name, *shape):
        n = 1
        for d in shape:
            n *= d
        norm = name.split(".")[-2] in ("ln1", "ln2", "post_ln", "norm") and name.endswith("weight")
        spread = 0.1 if norm else 0.2 if name.endswith("bias") else (3 / max(n // shape[-1], 1)) ** 0.5
        values = floats(len(g.tensors) + 7, n, spread, 1.0 if norm else 0.0)
        g.tensors[name.encode()] = [shape, 0, struct.pack("<%df" % n, *values)]

    def linear(name, inputs, outputs):
        add(name + ".weight", inputs, outputs)
        add(name + ".bias", outputs)

    square = 4 * WIDTH
    add("v.patch_embd.weight", PATCH, PATCH, 3, WIDTH)
    add("v.patch_embd.weight.1", PATCH, PATCH, 3, WIDTH)
    add("v.patch_embd.bias", WIDTH)
    add("v.position_embd.weight", WIDTH, SIDE * SIDE)
    for i in range(layers):
        for norm in ("ln1", "ln2"):
            add("v.blk.%d.%s.weight" % (i, norm), WIDTH)
            add("v.blk.%d.%s.bias" % (i, norm), WIDTH)
        linear("v.blk.%d.attn_qkv" % i, WIDTH, 3 * WIDTH)
        linear("v.blk.%d.attn_out" % i, WIDTH, WIDTH)
        linear("v.blk.%d.ffn_up" % i, WIDTH, FFN)
        linear("v.blk.%d.ffn_down" % i, FFN, WIDTH)
    add("v.deepstack.%d.norm.weight" % DEEP, square)
    add("v.deepstack.%d.norm.bias" % DEEP, square)
    linear("v.deepstack.%d.fc1" % DEEP, square, square)
    linear("v.deepstack.%d.fc2" % DEEP, square, embd)
    add("v.post_ln.weight", WIDTH)
    add("v.post_ln.bias", WIDTH)
    linear("mm.0", square, square)
    linear("mm.2", square, embd)
    return g.write(path)


def pixels(width, height, seed):
    """8-bit RGB, row by row."""
    return bytes(
        (x * (3 + seed) + y * (5 + c) + 40 * c * seed) % 256
        for y in range(height)
        for x in range(width)
        for c in range(3)
    )


def png(width, height, rgb):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    raw = b"".join(b"\0" + rgb[3 * width * y : 3 * width * (y + 1)] for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")


def name_marks(path):
    """Gives a text model's last tokens the names of the marks around an image."""
    g = Gguf(path)
    for i, name in enumerate((b"<|vision_start|>", b"<|vision_end|>", b"<|image_pad|>"), 1):
        g.keys[b"tokenizer.ggml.tokens"][1][1][-i] = name
        g.keys[b"tokenizer.ggml.token_type"][1][1][-i] = 3  # control
    return g.write(path)
