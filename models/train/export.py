#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""export.py: from a checkpoint of train.py to GGUF.

  export.py last.pt --tok tok.json --name demo --out models/demo.gguf

Writes GGUF version 3 without a library: architecture "llama" ("llama-relu", which only ntx knows, if the FFN has ReLU),
matrices F16, vectors and routers F32, the tokenizer as byte-level BPE ("gpt2", pre-tokenizer "gpt-2"). The model's text
starts with <s> and ends with </s>, and there is no chat template. If the vocabulary has chat tokens (chat.py), the
template is that of talks.py, and the model's messages end with <|im_end|>.
"""

import argparse
import json
import struct

import numpy as np
import torch

import net
import talks

U32, I32, F32, BOOL, STR, ARR = 4, 5, 6, 7, 8, 9
FORM = {U32: "I", I32: "i", F32: "f", BOOL: "?"}
TYPE_F32, TYPE_F16 = 0, 1
ALIGN = 32
NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(kind, v):
    if kind == STR:
        return string(v)
    return struct.pack("<" + FORM[kind], v)


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
        head += (
            string(name)
            + struct.pack("<I", a.ndim)
            + struct.pack(f"<{a.ndim}Q", *a.shape[::-1])
            + struct.pack("<IQ", kind, at)
        )
        at += -(-a.nbytes // ALIGN) * ALIGN
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGN))
        for _, a in tensors:
            f.write(a.tobytes() + bytes(-a.nbytes % ALIGN))


def read(path):
    """(metadata, tensors) of a file that write() wrote: {key: value}, {name: array}"""
    with open(path, "rb") as f:
        data = f.read()
    at = 8

    def take(kind):
        nonlocal at
        if kind == STR:
            n = take("Q")
            at += n
            return data[at - n : at].decode()
        if kind == ARR:
            kind, n = take("I"), take("Q")
            return [take(kind) for _ in range(n)]
        form = "<" + FORM.get(kind, kind)
        v = struct.unpack_from(form, data, at)[0]
        at += struct.calcsize(form)
        return v

    tensors, pairs = take("Q"), take("Q")
    meta = {take(STR): take(take("I")) for _ in range(pairs)}
    listed = [(take(STR), [take("Q") for _ in range(take("I"))], take("I"), take("Q")) for _ in range(tensors)]
    start = -(-at // ALIGN) * ALIGN
    kinds = {TYPE_F32: np.float32, TYPE_F16: np.float16}
    return meta, {
        name: np.frombuffer(data, kinds[kind], int(np.prod(dims)), start + where).reshape(dims[::-1])
        for name, dims, kind, where in listed
    }


def adjacent(w, heads):
    """Rows of q or k from rotated halves to adjacent pairs, as "llama" rotates them."""
    rows, cols = w.shape
    return w.reshape(heads, 2, rows // heads // 2, cols).swapaxes(1, 2).reshape(rows, cols)


def halves(w, heads):
    """The other way round."""
    rows, cols = w.shape
    return w.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


NAMES = {
    "q.weight": "attn_q",
    "k.weight": "attn_k",
    "v.weight": "attn_v",
    "o.weight": "attn_output",
    "attn_norm.weight": "attn_norm",
    "ffn_norm.weight": "ffn_norm",
}
DENSE = {"ffn.gate.weight": "ffn_gate", "ffn.up.weight": "ffn_up", "ffn.down.weight": "ffn_down"}
EXPERTS = {
    "ffn.router.weight": "ffn_gate_inp",
    "ffn.gates": "ffn_gate_exps",
    "ffn.ups": "ffn_up_exps",
    "ffn.downs": "ffn_down_exps",
}


def shape(path):
    meta, t = read(path)
    arch = meta["general.architecture"]

    def key(name, default=0):
        return meta.get(f"{arch}.{name}", default)

    return net.Shape(
        vocab=key("vocab_size"),
        layers=key("block_count"),
        embd=key("embedding_length"),
        heads=key("attention.head_count"),
        kv=key("attention.head_count_kv"),
        ff=key("feed_forward_length"),
        ctx=key("context_length"),
        act="relu" if arch == "llama-relu" else "silu",
        experts=key("expert_count"),
        used=key("expert_used_count", 2),
        tied="output.weight" not in t,
    )


def weights(path):
    """The state of net.Net from a file that this program wrote."""
    meta, t = read(path)

    def mat(name):
        return torch.from_numpy(t[name].astype(np.float32))

    net = {"embed.weight": mat("token_embd.weight"), "norm.weight": mat("output_norm.weight")}
    if "output.weight" in t:
        net["out.weight"] = mat("output.weight")
    arch = meta["general.architecture"]
    heads = {"q.weight": meta[f"{arch}.attention.head_count"], "k.weight": meta[f"{arch}.attention.head_count_kv"]}
    for i in range(meta[f"{arch}.block_count"]):
        for ours, theirs in (NAMES | (EXPERTS if f"{arch}.expert_count" in meta else DENSE)).items():
            w = mat(f"blk.{i}.{theirs}.weight")
            net[f"layers.{i}.{ours}"] = halves(w, heads[ours]) if ours in heads else w
    return net


def tensors(s, net):
    def mat(name):
        return net[name].float().numpy()

    out = [("token_embd.weight", mat("embed.weight").astype(np.float16)), ("output_norm.weight", mat("norm.weight"))]
    if not s["tied"]:
        out.append(("output.weight", mat("out.weight").astype(np.float16)))
    heads = {"q.weight": s["heads"], "k.weight": s["kv"]}
    for i in range(s["layers"]):
        for ours, theirs in (NAMES | (EXPERTS if s["experts"] else DENSE)).items():
            w = mat(f"layers.{i}.{ours}")
            if ours in heads:
                w = adjacent(w, heads[ours])
            out.append((f"blk.{i}.{theirs}.weight", w.astype(np.float16) if w.ndim > 1 and "router" not in ours else w))
    return out


def metadata(s, tok, name):
    marks = tok.get("marks", [])
    kinds = [
        (
            CONTROL
            if t in ("<s>", "</s>") or (t in marks and t[1] == "|")
            else USER_DEFINED
            if t in marks
            else UNUSED
            if t.startswith("<unused")
            else NORMAL
        )
        for t in tok["tokens"]
    ]
    chat = [("tokenizer.chat_template", STR, talks.TEMPLATE)] if marks else []
    arch = "llama-relu" if s["act"] == "relu" else "llama"
    experts = (
        [(f"{arch}.expert_count", U32, s["experts"]), (f"{arch}.expert_used_count", U32, s["used"])]
        if s["experts"]
        else []
    )
    return [
        ("general.architecture", STR, arch),
        ("general.name", STR, name),
        ("general.license", STR, "apache-2.0"),
        ("general.description", STR, "Small model that ntx trained itself on generated stories; see models/README.md"),
        ("general.file_type", U32, 1),
        ("general.quantization_version", U32, 2),
        (f"{arch}.vocab_size", U32, s["vocab"]),
        (f"{arch}.context_length", U32, s["ctx"]),
        (f"{arch}.embedding_length", U32, s["embd"]),
        (f"{arch}.block_count", U32, s["layers"]),
        (f"{arch}.feed_forward_length", U32, s["ff"]),
        (f"{arch}.attention.head_count", U32, s["heads"]),
        (f"{arch}.attention.head_count_kv", U32, s["kv"]),
        (f"{arch}.attention.layer_norm_rms_epsilon", F32, s["eps"]),
        (f"{arch}.rope.dimension_count", U32, s["embd"] // s["heads"]),
        (f"{arch}.rope.freq_base", F32, s["theta"]),
        *experts,
        ("tokenizer.ggml.model", STR, "gpt2"),
        ("tokenizer.ggml.pre", STR, "gpt-2"),
        ("tokenizer.ggml.tokens", STR, tok["tokens"]),
        ("tokenizer.ggml.token_type", I32, kinds),
        ("tokenizer.ggml.merges", STR, tok["merges"]),
        ("tokenizer.ggml.bos_token_id", U32, 0),
        ("tokenizer.ggml.eos_token_id", U32, tok["tokens"].index("<|im_end|>") if marks else 1),
        ("tokenizer.ggml.add_bos_token", BOOL, True),
        ("tokenizer.ggml.add_eos_token", BOOL, False),
        *chat,
    ]


def main():
    a = argparse.ArgumentParser()
    a.add_argument("checkpoint")
    a.add_argument("--tok", required=True)
    a.add_argument("--name", required=True)
    a.add_argument("--out", required=True)
    a = a.parse_args()
    c = torch.load(a.checkpoint, map_location="cpu")
    write(a.out, metadata(c["shape"], json.load(open(a.tok)), a.name), tensors(c["shape"], c["net"]))


if __name__ == "__main__":
    main()
