#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ntx pack --delta`, on the command line.

What it makes of layers that are alike by construction; that such a model's values are near those of the summed
matrices; layers that are identical; fine-tunes; what is refused, also with the demo. Nothing is left behind.
"""

import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gguf_edit import ARR, F32, U32, Gguf, cut_demo  # noqa: E402

NTX = os.environ["NTX_BIN"] + "/ntx"
MODELS = os.environ["NTX_SOURCE"] + "/models/"
SLOW = float(os.environ["NTX_TEST_SLOW"])
TMP = tempfile.mkdtemp(prefix="ntx-delta-")
KINDS = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
LAYERS, RANK = 3, 4
random.seed(7)


def path(name):
    return TMP + "/" + name


def run(*args):
    return subprocess.run([NTX, *args], capture_output=True, text=True, timeout=120 * SLOW)


def pack(*args):
    r = run("pack", "--delta", "--json", *args)
    assert r.returncode == 0, r
    return json.loads(r.stdout)


def refused(words, *args):
    before = sorted(os.listdir(TMP))
    r = run("pack", "--delta", *args)
    assert r.returncode == 111 and words in r.stderr and len(r.stderr.strip().splitlines()) == 1, r
    assert sorted(os.listdir(TMP)) == before, os.listdir(TMP)


def make(name, *options):
    subprocess.run(
        [
            os.environ["NTX_BIN"] + "/ntx-mkmodel",
            "--type",
            "F32",
            "--layers",
            str(LAYERS),
            "--embd",
            "64",
            "--ff",
            "96",
            "--heads",
            "4",
            "--kv",
            "2",
            *options,
            path(name),
        ],
        check=True,
        capture_output=True,
    )
    return path(name)


def values(t):
    shape, kind, data = t
    rows = struct.unpack("<%d%s" % (shape[0] * shape[1], {0: "f", 1: "e"}[kind]), bytes(data))
    return [rows[i : i + shape[0]] for i in range(0, len(rows), shape[0])]


def floats(rows):
    return [[len(rows[0]), len(rows)], 0, bytearray(b"".join(struct.pack("<%df" % len(r), *r) for r in rows))]


def plus(w, b, a, scale=1.0):
    """w + scale b a"""
    out = []
    for row, left in zip(w, b):
        row = list(row)
        for x, thin in zip(left, a):
            row = [v + scale * x * t for v, t in zip(row, thin)]
        out.append(row)
    return out


def random_rows(n, width, size):
    return [[random.gauss(0, size) for _ in range(width)] for _ in range(n)]


def alike(g, size, layers):
    """Layers get layer 0's matrices, and RANK pairs of vectors more."""
    for l in layers:
        for kind in KINDS:
            w = values(g.tensors[b"blk.0.%s.weight" % kind.encode()])
            g.tensors[b"blk.%d.%s.weight" % (l, kind.encode())] = floats(
                plus(w, random_rows(len(w), RANK, size), random_rows(RANK, len(w[0]), size))
            )


def summed(g):
    """The ordinary model that a file of bases and low-rank matrices represents."""
    scale = g.keys[b"adapter.lora.alpha"][1] if b"adapter.lora.alpha" in g.keys else 0
    for l in reversed(range(LAYERS)):
        for kind in KINDS:
            name = b"blk.%d.%s.weight" % (l, kind.encode())
            w, a, b = (
                values(g.tensors[b"blk.0.%s.weight" % kind.encode()]),
                values(g.tensors.pop(name + b".lora_a")),
                values(g.tensors.pop(name + b".lora_b")),
            )
            g.tensors[name] = floats(plus(w, b, a, scale / len(a) if scale else 1))
    del g.keys[b"ntx.delta.base"]
    return g


def logits(model, *more):
    r = run("logits", model, "--tokens", "5,9,3,20,41,7", "-o", path("logits"), "--ctx", "64", "--quiet", *more)
    assert r.returncode == 0, r
    data = open(path("logits"), "rb").read()
    os.unlink(path("logits"))
    return struct.unpack("<%df" % (len(data) // 4), data)


def distance(x, y):
    """of x from y, over y's size"""
    return (sum((a - b) ** 2 for a, b in zip(x, y)) / sum(b * b for b in y)) ** 0.5


def near(x, y, bound):
    assert distance(x, y) < bound, distance(x, y)


# Layers that differ by RANK pairs of vectors: from their mean they differ by twice as many.
g = Gguf(make("plain.gguf"))
alike(g, 0.2, range(1, LAYERS))
g.write(path("alike.gguf"))
r = pack("--rank", str(2 * RANK), "--error", "0.01", path("alike.gguf"), path("packed.gguf"))
assert (
    r["low_rank"] == LAYERS * len(KINDS) and r["rank_most"] == 2 * RANK and r["error"] < 1e-3 and r["change"] > 0.1
), r
p = Gguf(path("packed.gguf"))
assert (
    p.keys[b"ntx.delta.base"] == (ARR, (U32, [0] * LAYERS)) and abs(p.keys[b"ntx.delta.error"][1] - r["error"]) < 1e-6
)
assert (
    b"blk.1.ffn_up.weight" not in p.tensors
    and b"blk.1.attn_norm.weight" in p.tensors
    and p.tensors[b"blk.2.ffn_up.weight.lora_b"][0] == (2 * RANK, 96)
)
near(logits(path("packed.gguf")), logits(path("alike.gguf")), 2e-3)

# The values of the written model are those of the sums, also with a scale; and the error is printed.
summed(Gguf(path("packed.gguf"))).write(path("sum.gguf"))
near(logits(path("packed.gguf")), logits(path("sum.gguf")), 2e-4)  # K and V are rounded to F16
p.keys[b"adapter.lora.alpha"] = (F32, 20.0)
p.write(path("scaled.gguf"))
summed(p).write(path("sum.gguf"))
near(logits(path("scaled.gguf")), logits(path("sum.gguf")), 2e-4)  # K and V are rounded to F16
assert distance(logits(path("scaled.gguf")), logits(path("packed.gguf"))) > 0.01
out = run("run", path("packed.gguf"), "a", "-n", "2", "--raw", "--quiet", "--stats", "-", "--ctx", "64", "--ignore-eos")
assert out.returncode == 0 and '"delta:error=%.4f"' % r["error"] in out.stdout, out

# Layers can be skipped, and the file quantised, as any other.
text = [
    run(
        "run",
        path(name),
        "a",
        "-n",
        "8",
        "--temp",
        "0",
        "--raw",
        "--quiet",
        "--stats",
        path(name + ".json"),
        "--ctx",
        "64",
        "--ignore-eos",
        "--skip",
        "script:1",
    )
    for name in ("scaled.gguf", "sum.gguf")
]
stats = [json.load(open(path(name + ".json"))) for name in ("scaled.gguf", "sum.gguf")]
assert (
    text[0].stdout == text[1].stdout
    and stats[0]["skipped_layers_per_token"] == stats[1]["skipped_layers_per_token"] > 0
), text
assert run("quantize", path("packed.gguf"), path("q8.gguf"), "Q8_0", "--quiet").returncode == 0
near(logits(path("q8.gguf")), logits(path("packed.gguf")), 0.1)
assert distance(logits(path("q8.gguf")), logits(path("packed.gguf"))) > 0

# Streamed, with skipped layers that still compute K and V, from all tensors that these need.
few = [
    "-n",
    "40",
    "--temp",
    "0",
    "--raw",
    "--quiet",
    "--ctx",
    "128",
    "--ignore-eos",
    "--draft",
    "off",
    "--skip",
    "script:4,7",
    "--skip-kv",
    "propagate",
    "--stats",
    path("stats"),
]
shared = [run("run", MODELS + "demo-shared.gguf", "Once upon a time", *few, "--ram", ram) for ram in ("40M", "7M")]
assert (
    shared[0].returncode == shared[1].returncode == 0
    and shared[0].stdout == shared[1].stdout
    and json.load(open(path("stats")))["skipped_layers_per_token"] > 1.5
), shared


# In groups of neurons: the added matrices are read by group, the groups that layers share stay in memory. The values
# are the same whatever is read, and those of the summed matrices.
def grouped(model, *more):
    r = run("pack", model, path("groups.gguf"), "--group", "4K", "--force", "--quiet", "--json", *more)
    assert r.returncode == 0, r
    return json.loads(r.stdout)


def not_grouped(words, model, *more):
    r = run("pack", model, path("x.gguf"), *more)
    assert (
        r.returncode == 111
        and words in r.stderr
        and len(r.stderr.strip().splitlines()) == 1
        and not os.path.exists(path("x.gguf"))
    ), r


for name in ("packed.gguf", "scaled.gguf", "q8.gguf"):
    grouped(path(name))
    t = Gguf(path("groups.gguf")).tensors
    assert (
        b"blk.0.ntx_ffn.weight" in t
        and b"blk.1.ntx_ffn.weight" not in t
        and b"blk.2.ntx_ffn_delta.weight" in t
        and b"blk.1.ffn_up.weight.lora_b" not in t
    )
    near(logits(path("groups.gguf")), logits(path(name)), 0.05 if name == "q8.gguf" else 3e-4)
not_grouped("--gate-in-bundle", path("packed.gguf"), "--gate-in-bundle")
r = grouped(MODELS + "demo-shared.gguf")
assert r["group"] == 32 and r["group_bytes"] == 4096, r
few = [
    "-n",
    "40",
    "--temp",
    "0",
    "--raw",
    "--quiet",
    "--ctx",
    "128",
    "--ignore-eos",
    "--draft",
    "off",
    "--stats",
    path("stats"),
]
texts, read = [], []
for more in (
    ["--ram", "40M"],
    ["--ram", "5M"],
    ["--ram", "5M", "--ffn-sparse", "threshold=0"],
    ["--ram", "5M", "--ffn-sparse", "topk=1", "--threads", "1"],
    ["--ram", "5M", "--ffn-sparse", "topk=0.02"],
    ["--ram", "40M", "--ffn-sparse", "topk=0.02"],
    ["--ram", "5M", "--ffn-sparse", "topk=0.02", "--skip", "script:4,7"],
    ["--ram", "40M", "--ffn-sparse", "topk=0.02", "--skip", "script:4,7"],
    ["--ram", "5M", "--ffn-sparse", "prompt=0.3"],
    ["--ram", "40M", "--ffn-sparse", "prompt=0.3"],
):
    r = run("run", path("groups.gguf"), "Once upon a time", *few, *more)
    assert r.returncode == 0 and not r.stderr, r
    texts.append(r.stdout)
    read.append(json.load(open(path("stats")))["bytes_read_per_token"])
assert (
    texts[0] == texts[1] == texts[2] == texts[3] != texts[4] == texts[5]
    and texts[6] == texts[7] != texts[4]
    and texts[8] == texts[9]
), texts
assert read[4] < 0.98 * read[1] and read[6] < 0.95 * read[4], read


# ntx plan: shared tensors count once; with a GPU, and where it has no room for them.
def plan(model, *more):
    r = run(
        "plan",
        model,
        "--json",
        "--ctx",
        "128",
        "--ram",
        "5M",
        "--machine",
        "gpu=3090,ram=64G,drive=7G,pcie=4x16",
        *more,
    )
    assert r.returncode == 0, r
    return json.loads(r.stdout)


SHARED, CPU_ONLY = (
    MODELS + "demo-shared.gguf",
    "layers share, and add to (ntx pack of a model with deltas), are computed on the CPU only",
)
on, off, packed = plan(SHARED), plan(SHARED, "--backend", "cpu"), plan(path("groups.gguf"))
for p in on, off, packed:
    assert p["bytes_device"] + p["bytes_host"] + p["bytes_storage"] == p["bytes_model"] < 6 << 20, p
assert (
    on["bytes_device"] > 3 << 20
    and off["bytes_device"] == packed["bytes_device"] == 0
    and not any("GPU" in n for n in on["notes"])
), (on, off, packed)
assert any("the GPU is not used" in n and CPU_ONLY in n for n in packed["notes"]), packed
fake = os.environ["NTX_BUILD"] + "/tests/libntx-gpu-fake.so"
if os.path.exists(fake):
    os.environ["NTX_CUDA_LIBRARY"] = fake
    r = run("run", path("groups.gguf"), "Once upon a time", *few, "--ram", "40M")
    assert r.returncode == 0 and r.stdout == texts[0] and CPU_ONLY in json.load(open(path("stats")))["backend_note"], r
    r = run("run", path("groups.gguf"), "Once upon a time", *few, "--ram", "40M", "--backend", "cuda")
    assert r.returncode == 111 and CPU_ONLY in r.stderr, r
    r = run("run", SHARED, "Once upon a time", *few, "-n", "2", "--ram", "40M", "--backend", "cuda")
    assert (
        r.returncode == 0
        and json.load(open(path("stats")))["backend"] == "cuda"
        and "backend_note" not in json.load(open(path("stats")))
    ), r
    del os.environ["NTX_CUDA_LIBRARY"]

# Without a rank: few bits, or as many vectors as the error bound needs; the bound holds.
r = pack("--error", "0.05", "--force", path("alike.gguf"), path("free.gguf"))
assert r["error"] < 0.05 and r["few_bits"] + r["low_rank"] == LAYERS * len(KINDS), r
near(logits(path("free.gguf")), logits(path("alike.gguf")), 0.2)
grouped(path("free.gguf"))
near(
    logits(path("groups.gguf")), logits(path("free.gguf")), 0.02
)  # down's differences are rounded once more, by columns

# Identical layers: stored once, with exactly the same values.
make("again.gguf", "--repeat-layers")
g = Gguf(path("again.gguf"))
for name in [n for n in g.tensors if n.startswith(b"blk.2.")]:
    g.tensors[name] = g.tensors[b"blk.0." + name[6:]]
g.write(path("again.gguf"))
r = pack(path("again.gguf"), path("once.gguf"))
assert (
    r["distinct_layers"] < LAYERS
    and r["delta_bytes"] == 0
    and os.path.getsize(path("once.gguf")) < 0.8 * os.path.getsize(path("again.gguf"))
), r
assert logits(path("once.gguf")) == logits(path("again.gguf"))
grouped(path("once.gguf"))
near(logits(path("groups.gguf")), logits(path("again.gguf")), 3e-4)

# A fine-tune: its differences alone.
t = Gguf(path("plain.gguf"))
for kind in KINDS[:2]:
    name = b"blk.1.%s.weight" % kind.encode()
    w = values(t.tensors[name])
    t.tensors[name] = floats(plus(w, random_rows(len(w), RANK, 0.02), random_rows(RANK, len(w[0]), 0.02)))
t.write(path("tuned.gguf"))
r = pack("--base", path("plain.gguf"), path("tuned.gguf"), path("adapter.gguf"))
a = Gguf(path("adapter.gguf"))
assert (
    r["equal"] == LAYERS * len(KINDS) - 2
    and r["error"] < 0.01
    and r["rank_most"] <= 8
    and a.keys[b"general.type"][1] == b"adapter"
    and len(a.tensors) == 4
), r
assert logits(path("plain.gguf"), "--lora", path("adapter.gguf")) != logits(path("plain.gguf"))


def not_of(model):
    r = run(
        "logits",
        model,
        "--tokens",
        "5,9",
        "-o",
        path("logits"),
        "--ctx",
        "64",
        "--quiet",
        "--lora",
        path("adapter.gguf"),
    )
    assert (
        r.returncode == 111
        and "adapter.gguf: was made of another model than this one (ntx.delta.of)" in r.stderr
        and len(r.stderr.strip().splitlines()) == 1
    ), r


# With a quantised copy of its base as well: the copy's matrices and the same differences. A different model is refused,
# quantised or not.
not_of(path("alike.gguf"))
strong = Gguf(path("plain.gguf"))
alike(strong, 0.3, [1])
strong.write(path("strong.gguf"))
pack("--rank", "64", "--force", "--base", path("plain.gguf"), path("strong.gguf"), path("strong-adapter.gguf"))
assert run("quantize", path("plain.gguf"), path("copy.gguf"), "Q4_0", "--quiet").returncode == 0
assert run("quantize", path("copy.gguf"), path("back.gguf"), "F32", "--quiet").returncode == 0
back, strong = Gguf(path("back.gguf")), Gguf(path("strong-adapter.gguf"))
for name in {n[:-7] for n in strong.tensors}:
    back.tensors[name] = floats(
        plus(
            values(back.tensors[name]),
            values(strong.tensors[name + b".lora_b"]),
            values(strong.tensors[name + b".lora_a"]),
        )
    )
back.write(path("back.gguf"))
added = logits(path("copy.gguf"), "--lora", path("strong-adapter.gguf"))
near(added, logits(path("back.gguf")), 0.03)  # inputs of Q4_0 are rounded
assert distance(added, logits(path("copy.gguf"))) > 0.2
other = Gguf(path("copy.gguf"))
other.tensors[b"blk.2.ffn_norm.weight"][2][5] ^= 1
other.write(path("other.gguf"))
not_of(path("other.gguf"))
t.tensors[b"output_norm.weight"] = [[64], 0, bytearray(struct.pack("<64f", *[2.0] * 64))]
t.write(path("tuned.gguf"))
refused("'output_norm.weight'", "--base", path("plain.gguf"), path("tuned.gguf"), path("x.gguf"))
refused("no fine-tune of the base", "--base", MODELS + "demo.gguf", path("tuned.gguf"), path("x.gguf"))

# Refusals.
cut_demo(path("cut.gguf"), 2)
refused("nothing would be gained", path("cut.gguf"), path("x.gguf"))
refused("of the matrices would be lost", "--rank", "8", path("plain.gguf"), path("x.gguf"))
refused("already", path("packed.gguf"), path("x.gguf"))
refused("No such file", path("alike.gguf"), path("none/x.gguf"), "--force")
shutil.rmtree(TMP)
