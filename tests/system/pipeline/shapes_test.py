#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a converter may write in another form without any effect.

Vectors with trailing dimensions of 1, sections of M-RoPE, and tensors that only images use. For every architecture the
logits stay the same, also with the file that `ntx quantize` makes of it.
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, check, equal, make_model  # noqa: E402
from gguf_edit import ARR, I32, U32, Gguf  # noqa: E402

NTX = os.path.join(BIN, "ntx")
tmp = tempfile.TemporaryDirectory(prefix="ntx-shapes-")
os.environ.update({"TMPDIR": tmp.name, "XDG_RUNTIME_DIR": ""})
LATENT = "--kv-lora 32 --q-lora 32 --head-dim 32 --rotated 16 --experts 4 "
CHOICE = "--index-head 16 --index-heads 2 "
DELTA = "--layers 2 --attention-every 2 --experts 3 --delta-head 16 "
ARCHS = {
    "llama": "--rope-freqs --biases",
    "qwen2": "",
    "qwen2moe": "--experts 3",
    "qwen3": "--head-dim 32",
    "qwen3moe": "--experts 3 --expert-ff 32",
    "gpt-oss": "--experts 3",
    "glm4moe": "--experts 3 --nextn 1",
    "minimax-m2": "--experts 3",
    "olmoe": "--experts 3",
    "smollm3": "",
    "mistral3": "",
    "granite": "",
    "granitemoe": "--experts 3",
    "deepseek": "--experts 3",
    "deepseek2": LATENT,
    "deepseek32": LATENT + CHOICE,
    "glm-dsa": LATENT + CHOICE + "--index-every 1",
    "deepseek4": (
        "--layers 3 --head-dim 16 --rotated 8 --q-lora 16 --experts 4 --expert-ff 32 --shared-ff 32 --hashed 1"
        " --o-lora 16 " + CHOICE
    ),
    "mistral4": LATENT + "--fused",
    "hy_v4": LATENT + "--index-heads 4 --index-head 16",
    "kimi-linear": DELTA + "--kv-lora 32 --head-dim 32 --rotated 16",
    "glm5-next": DELTA + "--kv-lora 32 --q-lora 16 --head-dim 32 " + CHOICE,
    "qwen35": "--layers 2 --attention-every 2",
    "qwen35moe": DELTA,
    "qwen3next": DELTA,
    "qwen4exp": DELTA + "--head-dim 16 --low-rank 4 --gram-layer 1 " + CHOICE,
    "gemma2": "",
    "gemma3": "--layers 6",
    "gemma4": "--layers 3 --layer-input 32",
    "phi3": "",
    "llama4": "--experts 3",
    "step35": "--experts 3 --window 7 --qk-norms",
    "qwen2vl": "",
    "qwen3vl": "",
    "qwen3vlmoe": "--experts 3",
    "glm4": "--biases",
    "hunyuan-moe": "--experts 3 --expert-ff 32 --shared-ff 32",
    "hy_v3": "--experts 3 --nextn 1",
    "dots1": "--experts 3",
    "ernie4_5-moe": "--experts 3",
    "seed_oss": "--biases",
    "afmoe": "--experts 3 --window 7",
    "exaone-moe": "--experts 3 --window 7",
    "bailingmoe2": "--experts 3",
    "bailingmoe3": DELTA + "--kv-lora 32 --head-dim 32 --rotated 16",
    "laguna": "--layers 2 --experts 3 --window 7",
    "apertus": "",
    "cohere2": "",
    "cohere2moe": "--experts 3",
    "mimo2": "--layers 2 --experts 3 --window 7",
    "dbrx": "--experts 3",
    "kimi-k3": DELTA + "--kv-lora 32 --q-lora 32 --head-dim 32 --rotated 16 --experts 3 --latent 16",
    "grok": "--experts 3",
    "grovemoe": "--experts 4 --shared-ff 32",
}
# Tensors that published files have, and that only images or sounds use: an encoder in the same file.
EVERYWHERE = ("v.patch_embd.weight", "v.blk.0.attn_q.weight", "mm.0.bias", "a.conv1d.1.weight")
SECTIONS = {"qwen35", "qwen35moe", "qwen4exp", "qwen2vl", "qwen3vl", "qwen3vlmoe", "glm4", "bailingmoe3"}  # its own key


def path(name):
    return os.path.join(tmp.name, name)


def run(*argv):
    p = subprocess.run([NTX, *argv], stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    return p.returncode, p.stderr.decode()


def logits(model):
    out = path("out.f32")
    code, err = run("logits", model, "--tokens", "1,5,9,7,3", "-o", out, "--ram", "64M", "--ctx", "64", "--quiet")
    equal(code, 0, (model, err))
    return open(out, "rb").read()


def bend(g, arch):
    """Makes all of these changes at once; returns how many vectors there were."""
    n = 0
    for name, t in g.tensors.items():
        if len(t[0]) == 1:
            t[0] = (*t[0], 1) if n % 2 else (*t[0], 1, 1, 1)
            n += 1
    if arch not in SECTIONS:
        g.keys[arch.encode() + b".rope.dimension_sections"] = (ARR, (I32, [3, 3, 2, 0]))
    for name in EVERYWHERE:
        g.tensors[name.encode()] = [
            (32, 1) if name.endswith("bias") else (32, 32),
            0,
            bytearray(4 * (32 if name.endswith("bias") else 1024)),
        ]
    return n


def refused(g, *words):
    code, err = run("run", g.write(path("bad.gguf")), "x", "--raw", "-n", "1", "--ram", "64M")
    equal((code, len(err.splitlines())), (111, 1), (words, err))
    for w in words:
        check(w in err, w, "is not in", err)


for arch, options in ARCHS.items():
    plain = make_model(
        path("plain.gguf"),
        "--arch",
        arch,
        "--layers",
        "1",
        "--embd",
        "32",
        "--ff",
        "32",
        "--heads",
        "2",
        "--kv",
        "1",
        "--type",
        "F32",
        *options.split(),
    )
    g = Gguf(plain)
    n = bend(g, arch)
    check(n >= 2, arch, "has", n, "vectors")
    bent = g.write(path("bent.gguf"))
    want = logits(plain)
    check(logits(bent) == want, arch, ": the logits are others")
    made = path("made.gguf")
    equal(run("quantize", bent, made, "Q8_0")[0], 0, arch)
    equal(run("quantize", plain, path("same.gguf"), "Q8_0")[0], 0, arch)
    check(logits(made) == logits(path("same.gguf")), arch, ": the logits of what ntx quantize makes are others")

g = Gguf(
    make_model(
        path("plain.gguf"),
        "--arch",
        "qwen3",
        "--layers",
        "1",
        "--embd",
        "32",
        "--ff",
        "32",
        "--heads",
        "2",
        "--kv",
        "1",
        "--type",
        "F32",
    )
)
g.keys[b"qwen3.rope.dimension_sections"] = (ARR, (U32, [3, 3, 2, 4]))  # a fourth position, which is 0 for a text
refused(g, "qwen3.rope.dimension_sections")
del g.keys[b"qwen3.rope.dimension_sections"]
g.tensors[b"blk.0.exp_probs_b_vl.bias"] = [(32,), 0, bytearray(128)]  # another architecture's
refused(g, "blk.0.exp_probs_b_vl.bias", "has no place")
del g.tensors[b"blk.0.exp_probs_b_vl.bias"]
g.tensors[b"blk.0.attn_norm.weight"][0] = (1, 32)
refused(g, "blk.0.attn_norm.weight", "is 1 x 32 x 1 x 1, expected 32 x 1")
print("what changes nothing changed nothing of", len(ARCHS), "architectures")
