#!/usr/bin/env python3
"""export.py: from a checkpoint of train.py to GGUF.

  export.py last.pt --tok tok.json --name demo --out models/demo.gguf

Writes GGUF version 3 by itself: architecture "llama", matrices F16, vectors F32, the tokenizer as byte-level BPE ("gpt2", pre-tokenizer
"gpt-2"). The text of the model starts with <s> and ends with </s>; there is no chat template."""
import argparse
import json
import struct

import numpy as np
import torch

U32, I32, F32, BOOL, STR, ARR = 4, 5, 6, 7, 8, 9
TYPE_F32, TYPE_F16 = 0, 1
ALIGN = 32
NORMAL, CONTROL, UNUSED = 1, 3, 5


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STR:
        return string(v)
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], v)


def pair(key, kind, v):
    if isinstance(v, list):
        body = struct.pack("<IIQ", ARR, kind, len(v)) + b"".join(value(kind, x) for x in v)
    else:
        body = struct.pack("<I", kind) + value(kind, v)
    return string(key) + body


def write(path, meta, tensors):
    """meta: [(key, kind, value or list)]; tensors: [(name, array F32 or F16)]"""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(meta)) + b"".join(pair(*m) for m in meta)
    at = 0
    for name, a in tensors:
        kind = TYPE_F16 if a.dtype == np.float16 else TYPE_F32
        head += string(name) + struct.pack("<I", a.ndim) + struct.pack(f"<{a.ndim}Q", *a.shape[::-1]) + struct.pack("<IQ", kind, at)
        at += -(-a.nbytes // ALIGN) * ALIGN
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGN))
        for _, a in tensors:
            f.write(a.tobytes() + bytes(-a.nbytes % ALIGN))


def adjacent(w, heads):
    """Rows of q or k from rotated halves to adjacent pairs, as "llama" rotates them."""
    rows, cols = w.shape
    return w.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def tensors(s, net):
    def mat(name):
        return net[name].float().numpy()

    out = [("token_embd.weight", mat("embed.weight").astype(np.float16)), ("output_norm.weight", mat("norm.weight"))]
    if not s["tied"]:
        out.append(("output.weight", mat("out.weight").astype(np.float16)))
    names = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}
    for i in range(s["layers"]):
        for norm in ("attn_norm", "ffn_norm"):
            out.append((f"blk.{i}.{norm}.weight", mat(f"layers.{i}.{norm}.weight")))
        for ours, theirs in names.items():
            w = mat(f"layers.{i}.{ours}.weight")
            if ours in "qk":
                w = adjacent(w, s["heads"] if ours == "q" else s["kv"])
            out.append((f"blk.{i}.{theirs}.weight", w.astype(np.float16)))
    return out


def metadata(s, tok, name):
    kinds = [CONTROL if t in ("<s>", "</s>") else UNUSED if t.startswith("<unused") else NORMAL for t in tok["tokens"]]
    return [
        ("general.architecture", STR, "llama"),
        ("general.name", STR, name),
        ("general.license", STR, "apache-2.0"),
        ("general.description", STR, "Small model that ntx trained itself on generated stories; see models/README.md"),
        ("general.file_type", U32, 1),
        ("general.quantization_version", U32, 2),
        ("llama.vocab_size", U32, s["vocab"]),
        ("llama.context_length", U32, s["ctx"]),
        ("llama.embedding_length", U32, s["embd"]),
        ("llama.block_count", U32, s["layers"]),
        ("llama.feed_forward_length", U32, s["ff"]),
        ("llama.attention.head_count", U32, s["heads"]),
        ("llama.attention.head_count_kv", U32, s["kv"]),
        ("llama.attention.layer_norm_rms_epsilon", F32, s["eps"]),
        ("llama.rope.dimension_count", U32, s["embd"] // s["heads"]),
        ("llama.rope.freq_base", F32, s["theta"]),
        ("tokenizer.ggml.model", STR, "gpt2"),
        ("tokenizer.ggml.pre", STR, "gpt-2"),
        ("tokenizer.ggml.tokens", STR, tok["tokens"]),
        ("tokenizer.ggml.token_type", I32, kinds),
        ("tokenizer.ggml.merges", STR, tok["merges"]),
        ("tokenizer.ggml.bos_token_id", U32, 0),
        ("tokenizer.ggml.eos_token_id", U32, 1),
        ("tokenizer.ggml.add_bos_token", BOOL, True),
        ("tokenizer.ggml.add_eos_token", BOOL, False),
    ]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("checkpoint")
    a.add_argument("--tok", required=True)
    a.add_argument("--name", required=True)
    a.add_argument("--out", required=True)
    a = a.parse_args()
    c = torch.load(a.checkpoint, map_location="cpu")
    if c["shape"]["act"] != "silu":
        raise SystemExit("export.py: only SwiGLU models are written")
    write(a.out, metadata(c["shape"], json.load(open(a.tok)), a.name), tensors(c["shape"], c["net"]))


if __name__ == "__main__":
    main()
