#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ntx quantize`, on the command line.

Types as llama.cpp's quantiser chooses them, the same bytes from any number of threads and in parts, refusals, and that
a failure leaves nothing behind.
"""

import collections
import hashlib
import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
NTX = os.environ["NTX_BIN"] + "/ntx"
DEMO = os.environ["NTX_SOURCE"] + "/models/demo.gguf"
TMP = tempfile.mkdtemp(prefix="ntx-quantize-")
OUT = TMP + "/out.gguf"
SLOW = float(os.environ["NTX_TEST_SLOW"])


def ntx(*args, **more):
    return subprocess.run([NTX, "quantize", *args], capture_output=True, text=True, timeout=120 * SLOW, **more)


def done(*args):
    r = ntx(*args)
    assert r.returncode == 0, r
    return r


def refused(words, *args, **more):
    r = ntx(*args, **more)
    assert r.returncode == 111, r
    assert words in r.stderr and len(r.stderr.strip().splitlines()) == 1, r.stderr
    return r


def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()


def left():
    return sorted(os.listdir(TMP))


def types(*args):
    tensors = json.loads(done(*args, "--dry-run", "--json").stdout)["tensors"]
    return {t["name"]: t["type"] for t in tensors}


# Types that llama.cpp's quantiser chose for the demo's matrices (tests/system/quantize/peer.py compares many more).
CHOSEN = {
    "Q4_K_M": {"F32": 25, "Q4_K": 73, "Q6_K": 13},
    "Q5_K_S": {"F32": 25, "Q5_K": 85, "Q6_K": 1},
    "Q3_K_M": {"F32": 25, "Q3_K": 49, "Q4_K": 34, "Q5_K": 2, "Q6_K": 1},
    "Q2_K": {"F32": 25, "Q2_K": 49, "Q3_K": 36, "Q6_K": 1},
    "IQ3_M": {"F32": 25, "IQ3_S": 60, "Q4_K": 25, "Q6_K": 1},
    "IQ4_XS": {"F32": 25, "IQ4_XS": 84, "Q5_K": 1, "Q6_K": 1},
    "IQ3_XXS": {"F32": 25, "IQ2_S": 24, "IQ3_S": 25, "IQ3_XXS": 24, "Q3_K": 11, "Q4_K": 1, "Q5_K": 1},
    "IQ2_M": {"F32": 25, "IQ2_S": 59, "IQ3_S": 26, "Q5_K": 1},
    "IQ1_S": {"F32": 25, "IQ1_S": 59, "IQ2_XXS": 12, "Q2_K": 14, "Q5_K": 1},
    "F16": {"F16": 86, "F32": 25},
}


# Mean squares of the first input, and of all together, from llama.cpp's llama-imatrix with the same 8 windows of 256
# tokens.
ORACLE = (
    ("blk.0.attn_q.weight", 0.981703, 122.635),
    ("blk.3.attn_output.weight", 0.168563, 88.5375),
    ("blk.5.ffn_gate.weight", 0.0991536, 19.7149),
    ("blk.11.ffn_down.weight", 144.5, 5589.44),
)


# The same for models with several matrices in a tensor, or with other inputs than most: the number of rows for each,
# and the sums of the squares of their inputs, in 2 windows of 256 tokens. llama.cpp counts the inputs of all heads
# together.
SEVERAL = (
    # experts whose input is scaled by their share, in every second layer
    (
        "--arch llama4 --layers 4 --head-dim 64 --experts-used 1 --expert-every 2",
        36 - 2,
        {
            "blk.1.ffn_gate_exps.weight": (
                [53, 117, 64, 42, 132, 104],
                [11329.9, 24742.7, 13099.0, 8315.77, 28207.8, 21785.5],
            ),
            "blk.1.ffn_down_exps.weight": (
                [53, 117, 64, 42, 132, 104],
                [3350.31, 7747.55, 3550.29, 2294.86, 7946.81, 5601.03],
            ),
            "blk.3.ffn_up_exps.weight": (
                [104, 50, 99, 117, 78, 64],
                [19696.7, 10242.4, 20981.5, 22070.5, 16434.5, 13277.4],
            ),
        },
    ),
    # gate and up of an expert in one matrix
    (
        "--arch mistral4 --kv-lora 64 --q-lora 64 --head-dim 64 --rotated 32 --experts-used 2 --fused",
        24 - 2,
        {
            "blk.1.ffn_gate_up_exps.weight": (
                [181, 143, 126, 122, 277, 175],
                [46287.3, 36598.0, 32114.7, 31295.9, 70871.4, 44759.7],
            ),
            "blk.1.ffn_down_exps.weight": (
                [181, 143, 126, 122, 277, 175],
                [15347.0, 13030.6, 10706.4, 9791.15, 25497.5, 16879.4],
            ),
        },
    ),
    # a matrix of each head
    (
        "--arch deepseek2 --kv-lora 256 --q-lora 256 --head-dim 64 --rotated 32 --experts-used 2",
        26 - 2,
        {"blk.1.attn_k_b.weight": ([512] * 4, 148259.5), "blk.1.attn_v_b.weight": ([512] * 4, 248206.6)},
    ),
)


def said(r, model, out):
    """The arguments of the `ntx quantize` command that an error proposes."""
    words = r.stderr.split("ntx quantize ")[1].split()[:3]
    assert words[:2] == ["MODEL", "OUT.gguf"], words
    return model, out, words[2]


def check_mixes():
    for mix, want in CHOSEN.items():
        got = collections.Counter(types(DEMO, OUT, mix).values())
        assert got == want, (mix, got)
    q4 = types(DEMO, OUT, "q4_k_m")
    assert [i for i in range(12) if q4["blk.%d.ffn_down.weight" % i] == "Q6_K"] == [0, 3, 6, 9, 10, 11], q4
    own = types(
        DEMO, OUT, "Q4_K_S", "--tensor", "blk.[0-2].attn_v=Q8_0", "--tensor", "attn_v=F16", "--tensor", "^output=q5_1"
    )
    assert (
        own["blk.1.attn_v.weight"] == "Q8_0"
        and own["blk.3.attn_v.weight"] == "F16"
        and own["output.weight"] == "Q5_1"
        and own["blk.1.attn_q.weight"] == "Q4_K"
    ), own
    assert set(types(DEMO, OUT, "Q4_K_M", "--pure").values()) == {"F32", "Q4_K"}
    assert left() == []
    # tensors that are not quantised: of every model, and by architecture
    mkmodel("--layers 4 --arch glm5-next --kv-lora 64 --q-lora 64 --head-dim 64 --nextn 1", TMP + "/kept.gguf")
    next = types(TMP + "/kept.gguf", OUT, "Q4_0")
    kept = sorted({n.split(".", 2)[2] for n, t in next.items() if n.startswith("blk.") and t == "F16"})
    assert kept == [
        "attn_k_b.weight",
        "attn_kv_a_mqa.weight",
        "attn_v_b.weight",
        "hc_attn_fn.weight",
        "hc_ffn_fn.weight",
        "indexer.attn_k.weight",
        "indexer.attn_q_b.weight",
        "indexer_compressor_gate.weight",
        "ssm_f_a.weight",
        "ssm_f_b.weight",
        "ssm_g_a.weight",
        "ssm_g_b.weight",
    ], kept
    assert (
        next["blk.1.ssm_conv1d_q.weight"] == next["blk.1.ffn_gate_inp.weight"] == "F32"
        and next["blk.3.attn_q_b.weight"] == next["blk.1.ffn_down_exps.weight"] == "Q4_0"
    ), next
    os.unlink(TMP + "/kept.gguf")


def check_bytes():
    """The same file from any number of threads and in parts."""
    done(DEMO, OUT, "Q4_K_M", "--threads", "1")
    one = digest(OUT)
    done(DEMO, TMP + "/three.gguf", "Q4_K_M", "--threads", "3")
    assert digest(TMP + "/three.gguf") == one
    # in parts, which are then joined
    r = json.loads(done(DEMO, TMP + "/p.gguf", "Q4_K_M", "--split", "2M", "--json").stdout)
    parts = [n for n in left() if n.startswith("p-")]
    assert r["parts"] == len(parts) >= 3 and all(os.path.getsize(TMP + "/" + n) <= 2 << 20 for n in parts), (
        r["parts"],
        parts,
    )
    assert sum(os.path.getsize(TMP + "/" + n) for n in parts) == r["bytes_out"]
    r = done(TMP + "/" + parts[0], TMP + "/joined.gguf", "Q4_K_M")
    assert "quantised before" not in r.stderr  # every tensor had its type already
    assert digest(TMP + "/joined.gguf") == one, "parts are not what the whole is"
    # quantised twice, with a warning
    r = done(OUT, TMP + "/again.gguf", "Q8_0")
    assert "86 tensors were quantised before" in r.stderr, r.stderr
    # lossless conversions
    done(DEMO, TMP + "/f32.gguf", "F32")
    done(TMP + "/f32.gguf", TMP + "/f16.gguf", "F16")
    from gguf_edit import Gguf

    a, b = Gguf(DEMO), Gguf(TMP + "/f16.gguf")
    assert {k: [v[0], v[1], bytes(v[2])] for k, v in a.tensors.items()} == {
        k: [v[0], v[1], bytes(v[2])] for k, v in b.tensors.items()
    }
    assert b.keys[b"general.file_type"][1] == 1 and b.keys[b"tokenizer.ggml.tokens"] == a.keys[b"tokenizer.ggml.tokens"]
    for n in left():
        os.unlink(TMP + "/" + n)


def check_size():
    """fit:SIZE takes at most SIZE and nearly all of it; the error for a smaller SIZE names the least that fits."""
    import gguf_edit

    small = gguf_edit.cut_demo(TMP + "/small.gguf", 3)
    for size in (1500000, 2200000, 4000000):
        r = json.loads(done(small, OUT, "fit:%d" % size, "--json").stdout)
        assert size * 0.97 < os.path.getsize(OUT) <= size, (size, os.path.getsize(OUT))
        assert r["bytes_out"] == os.path.getsize(OUT)
    assert "Q8_0" == types(small, OUT, "fit:2M", "--tensor", "attn_k=Q8_0")["blk.2.attn_k.weight"]
    r = refused("the least that this model takes is fit:", small, OUT + "x", "fit:300K")
    least = r.stderr.split(" is fit:")[1].split()[0]
    done(small, OUT, "fit:" + least)
    assert os.path.getsize(OUT) <= int(least)
    refused("the least that this model takes is fit:" + least, small, OUT + "x", "fit:%d" % (int(least) - 1))
    chosen = types(DEMO, OUT, "fit:4388864")  # as large as IQ4_XS
    bits = ["Q2_K", "IQ3_S", "IQ4_XS", "Q4_K", "Q5_K", "Q6_K", "Q8_0", "F16"]
    assert (
        bits.index(chosen["output.weight"])
        >= bits.index(chosen["blk.3.ffn_up.weight"])
        > bits.index(chosen["token_embd.weight"])
    ), chosen
    assert bits.index(chosen["blk.3.attn_v.weight"]) > bits.index(chosen["blk.3.ffn_up.weight"]), (
        chosen
    )  # small, so bits are cheap
    # where layers are alike, gains tie: the choice between them must not depend on threads
    gguf_edit.cut_demo(small, 4, same=True)
    for size in ("fit:1800000", "fit:2000000"):
        one = types(small, OUT, size, "--threads", "1")
        assert any(
            len({one["blk.%d.%s.weight" % (i, of)] for i in range(4)}) > 1
            for of in ("ffn_gate", "ffn_up", "ffn_down", "attn_q")
        ), one
        assert all(types(small, OUT, size, "--threads", str(n)) == one for n in (2, 3, 8)), size
    for n in left():
        os.unlink(TMP + "/" + n)


def logits(model):
    subprocess.run(
        [NTX, "logits", model, "--tokens", "1,20,30,40,50,60", "-o", OUT + ".f32"],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    data = open(OUT + ".f32", "rb").read()
    os.unlink(OUT + ".f32")
    return struct.unpack("<%df" % (len(data) // 4), data)


def apart(a, b):
    return (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)) ** 0.5


def check_scales():
    """A file with separate scales of matrices: in another type, the weights include these scales."""
    from gguf_edit import Gguf

    done(DEMO, TMP + "/f32.gguf", "F32")
    g = Gguf(TMP + "/f32.gguf")
    for name in (b"blk.0.attn_q", b"blk.1.ffn_down"):
        g.tensors[name + b".scale"] = [[1], 0, struct.pack("<f", 0.25)]
        g.tensors[name + b".input_scale"] = [[1], 0, struct.pack("<f", 3)]
    g.write(TMP + "/scaled.gguf")
    done(TMP + "/scaled.gguf", OUT, "F16")
    scaled, folded, plain = logits(TMP + "/scaled.gguf"), logits(OUT), logits(TMP + "/f32.gguf")
    assert apart(scaled, folded) < 1e-4 and apart(scaled, plain) > 0.005, (apart(scaled, folded), apart(scaled, plain))
    for kind in ("F32", "Q8_0"):  # whatever the matrices are, the command that is named is one that helps
        if kind != "F32":
            done(DEMO, TMP + "/plain.gguf", kind)
            g = Gguf(TMP + "/plain.gguf")
            g.tensors[b"blk.1.ffn_down.scale"] = [[1], 0, struct.pack("<f", 0.25)]
            g.write(TMP + "/scaled.gguf")
        r = subprocess.run([NTX, "pack", TMP + "/scaled.gguf", TMP + "/packed.gguf"], capture_output=True, text=True)
        assert r.returncode == 111 and not os.path.exists(TMP + "/packed.gguf"), r
        done(*said(r, TMP + "/scaled.gguf", TMP + "/folded.gguf"))
        subprocess.run(
            [NTX, "pack", TMP + "/folded.gguf", TMP + "/packed.gguf", "--force", "--quiet"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        os.unlink(TMP + "/packed.gguf")
    # a tensor that does not belong to the model
    for kind in ("F16", "Q8_0"):
        mkmodel(
            "--arch deepseek2 --kv-lora 64 --q-lora 64 --head-dim 64 --rotated 32 --experts-used 2 --type " + kind,
            TMP + "/scaled.gguf",
        )
        g = Gguf(TMP + "/scaled.gguf")
        g.tensors[b"blk.0.attn_k_b.scale"] = [[1], 0, struct.pack("<f", 0.25)]
        g.write(TMP + "/scaled.gguf")
        r = subprocess.run(
            [NTX, "logits", TMP + "/scaled.gguf", "--tokens", "1,2", "-o", TMP + "/no.f32"],
            capture_output=True,
            text=True,
        )
        assert r.returncode == 111, r
        done(*said(r, TMP + "/scaled.gguf", TMP + "/folded.gguf"))
        logits(TMP + "/folded.gguf")
    a, b = Gguf(DEMO), Gguf(OUT)
    assert set(a.tensors) == set(b.tensors)
    for name, by in ((b"blk.0.attn_q.weight", 4), (b"blk.1.ffn_down.weight", 4), (b"blk.2.attn_q.weight", 1)):
        x, y = (struct.unpack("<%de" % (len(t.tensors[name][2]) // 2), t.tensors[name][2]) for t in (a, b))
        assert all(abs(u - by * v) <= 2e-7 * by for u, v in zip(x, y)), name
    for n in left():
        os.unlink(TMP + "/" + n)


def check_refused():
    refused("'Q4_X' is no type; there are fit:SIZE, F32, F16", DEMO, OUT, "Q4_X")
    refused("ntx imatrix MODEL TEXT -o FILE", DEMO, OUT, "IQ2_XXS")
    refused("write it as REGEX=TYPE", DEMO, OUT, "Q4_K_M", "--tensor", "attn_v")
    refused("write it as REGEX=TYPE", DEMO, OUT, "Q4_K_M", "--tensor", "attn_v=Q4_K_M")
    refused("is no regular expression", DEMO, OUT, "Q4_K_M", "--tensor", "a(=Q4_K")
    refused("is the name of no tensor", DEMO, OUT, "Q4_K_M", "--tensor", "nobody=Q4_K")
    refused("'much' is not a size; write it as 512M or 3G", DEMO, OUT, "fit:much")
    refused("'4' has no unit and would be bytes; did you mean 4G?", DEMO, OUT, "fit:4")
    refused("No such file", DEMO + "x", OUT, "Q4_K_M")
    refused("No such file", DEMO, TMP + "/none/out.gguf", "Q4_K_M")
    r = refused("parts of 4096 are too small", DEMO, OUT, "Q4_K_M", "--split", "4K")
    least = int(r.stderr.split("--split ")[1].split()[0])
    done(DEMO, TMP + "/s.gguf", "Q4_K_M", "--split", str(least))
    assert len(left()) > 1 and all(os.path.getsize(TMP + "/" + n) <= least for n in left()), left()
    refused("parts of %d are too small" % (least - 1), DEMO, OUT, "Q4_K_M", "--split", str(least - 1))
    for n in left():
        os.unlink(TMP + "/" + n)
    refused("no importance matrix", DEMO, OUT, "Q4_K_M", "--imatrix", DEMO)
    assert left() == []
    # a model cut short; nothing of OUT is touched
    cut = TMP + "/cut.gguf"
    with open(DEMO, "rb") as f:
        whole = f.read()
    open(cut, "wb").write(whole[: len(whole) // 2])
    open(OUT, "w").write("mine")
    refused("cut.gguf", cut, OUT, "Q4_K_M")
    assert open(OUT).read() == "mine"
    # onto itself, by whatever name
    open(cut, "wb").write(whole)
    os.symlink(cut, TMP + "/link.gguf")
    refused("this is the model itself", cut, cut, "Q4_K_M")
    refused("this is the model itself", cut, TMP + "/link.gguf", "Q4_K_M")
    assert open(cut, "rb").read() == whole
    # weights that are not finite
    from gguf_edit import Gguf

    g = Gguf(DEMO)
    g.tensors[b"blk.3.ffn_up.weight"][2][512 * 7 : 512 * 7 + 2] = b"\x00\x7c"
    g.write(cut)
    refused("blk.3.ffn_up.weight', matrix row 7: a weight is no number", cut, OUT, "Q4_K_M")
    # values beyond the type: the command that the error proposes keeps them
    g = Gguf(DEMO)
    ne, _, data = g.tensors[b"blk.3.ffn_up.weight"]
    values = struct.unpack("<%de" % (len(data) // 2), bytes(data))
    g.tensors[b"blk.3.ffn_up.weight"] = [
        ne,
        0,
        struct.pack("<%df" % len(values), *(1e9 * v if 512 <= i < 768 else v for i, v in enumerate(values))),
    ]
    g.write(cut)
    r = refused("larger than the type can hold", cut, OUT, "Q4_K_M")
    done(cut, TMP + "/kept.gguf", "Q4_K_M", "--tensor", r.stderr.split("--tensor '")[1].split("'")[0])
    os.unlink(TMP + "/kept.gguf")
    assert open(OUT).read() == "mine" and left() == ["cut.gguf", "link.gguf", "out.gguf"], left()
    for n in left():
        os.unlink(TMP + "/" + n)


def sums(path):
    """{tensor: (sums, counts)}"""
    from gguf_edit import Gguf

    t = {k.decode(): struct.unpack("<%df" % (len(v[2]) // 4), v[2]) for k, v in Gguf(path).tensors.items()}
    return {k[:-8]: (v, t[k[:-8] + ".counts"]) for k, v in t.items() if k.endswith(".in_sum2")}


def imatrix(*args):
    r = subprocess.run([NTX, "imatrix", *args], capture_output=True, text=True, timeout=200 * SLOW)
    assert r.returncode == 0, r
    return r


def check_imatrix():
    """What the importance matrix sums, that memory and threads do not change it, and what it improves."""
    text = os.environ["NTX_SOURCE"] + "/models/held-out.txt"
    path, again = TMP + "/im.gguf", TMP + "/im2.gguf"
    imatrix(DEMO, text, "-o", path, "--ctx", "256", "--limit", "2048", "--threads", "1")
    imatrix(DEMO, text, "-o", again, "--ctx", "256", "--limit", "2048", "--threads", "2", "--ram", "24M")
    assert digest(path) == digest(again)
    s = sums(path)
    assert len(s) == 84 and "output.weight" not in s, len(s)
    assert (
        s["blk.4.attn_q.weight"] == s["blk.4.attn_v.weight"]
        and s["blk.4.ffn_gate.weight"] == s["blk.4.ffn_up.weight"] != s["blk.4.attn_q.weight"]
    )
    for name, first, total in ORACLE:
        v, (count,) = s[name]
        assert count == s["blk.0.attn_q.weight"][1][0] and 2048 - 8 <= count <= 2048, (name, count)
        assert abs(v[0] / count - first) < 0.03 * first and abs(sum(v) / count - total) < 0.02 * total, (
            name,
            v[0] / count,
            sum(v) / count,
        )
    # it reduces the weighted error, and makes two bits possible
    r = done(DEMO, OUT, "IQ2_XXS", "--imatrix", path)
    tokens = int(max(c for _, counts in s.values() for c in counts))
    assert "importance matrix from %d tokens of held-out.txt" % tokens in r.stdout, r.stdout
    assert "was made from few tokens: %d" % tokens in r.stderr, r.stderr
    from gguf_edit import Gguf

    assert b"quantize.imatrix.entries_count\x04\x00\x00\x00\x54\x00\x00\x00" in open(OUT, "rb").read()
    # invalid files
    bad = TMP + "/bad.gguf"
    for words, spoil in (
        (
            "which is no sum of squares",
            lambda g: g.tensors[b"blk.1.attn_k.weight.in_sum2"].__setitem__(2, b"\x00\x00\xc0\x7f" * 256),
        ),
        (
            "which is no sum of squares",
            lambda g: g.tensors[b"blk.1.attn_k.weight.counts"].__setitem__(2, struct.pack("<f", -1)),
        ),
        ("needs 'blk.1.attn_k.weight.counts' beside it", lambda g: g.tensors.pop(b"blk.1.attn_k.weight.counts")),
        (
            "is another model's",
            lambda g: g.tensors.__setitem__(b"blk.1.attn_k.weight.in_sum2", [[128, 1], 0, bytes(512)]),
        ),
        ("this one says nothing about it", lambda g: g.tensors.pop(b"blk.1.attn_k.weight.in_sum2")),
    ):
        g = Gguf(path)
        spoil(g)
        g.write(bad)
        os.path.exists(OUT) and os.unlink(OUT)
        refused(words, DEMO, OUT, "IQ2_XXS", "--imatrix", bad)
        assert not os.path.exists(OUT)
    # experts that no token chose are reported, and quantised all the same
    moe = TMP + "/moe.gguf"
    subprocess.run(
        [
            os.environ["NTX_BIN"] + "/ntx-mkmodel",
            "--layers",
            "1",
            "--embd",
            "256",
            "--ff",
            "256",
            "--heads",
            "4",
            "--experts",
            "20",
            "--expert-ff",
            "256",
            "--type",
            "F16",
            moe,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    r = imatrix(moe, text, "-o", path, "--ctx", "32", "--limit", "8")
    assert "experts were never chosen" in r.stderr and "8 tokens are few" in r.stderr, r.stderr
    s = sums(path)
    v, counts = s["blk.0.ffn_down_exps.weight"]
    assert len(counts) > 4 and min(counts) == 0 and max(counts) > 0, counts
    each = len(v) // len(counts)
    assert all((c > 0) == (sum(v[i * each : (i + 1) * each]) > 0) for i, c in enumerate(counts))
    assert counts == s["blk.0.ffn_up_exps.weight"][1]
    r = done(moe, OUT, "IQ3_XXS", "--imatrix", path)
    assert "experts were never chosen while the importance matrix was made" in r.stderr, r.stderr
    for n in left():
        os.unlink(TMP + "/" + n)


def mkmodel(options, path):
    subprocess.run(
        [
            os.environ["NTX_BIN"] + "/ntx-mkmodel",
            "--layers",
            "2",
            "--embd",
            "256",
            "--ff",
            "256",
            "--heads",
            "4",
            "--experts",
            "6",
            "--expert-ff",
            "256",
            "--type",
            "F16",
            "--seed",
            "3",
            "--vocab-from",
            DEMO,
            *options.split(),
            path,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def near(a, b):
    return abs(a - b) < 2e-3 * b


def check_several():
    """Matrices of experts and of heads: the sums are llama.cpp's, and suffice for two bits."""
    text = os.environ["NTX_SOURCE"] + "/models/held-out.txt"
    path, again, model = TMP + "/im.gguf", TMP + "/im2.gguf", TMP + "/m.gguf"
    from gguf_edit import Gguf

    for options, n, want in SEVERAL:
        mkmodel(options, model)
        imatrix(model, text, "-o", path, "--ctx", "256", "--limit", "512", "--threads", "1")
        imatrix(model, text, "-o", again, "--ctx", "256", "--limit", "512", "--threads", "3")
        assert digest(path) == digest(again), options
        s = sums(path)
        assert len(s) == n, (options, len(s))
        for name, (counts, totals) in want.items():
            v, got = s[name]
            each = len(v) // len(counts)
            assert list(got) == counts, (name, got)
            if isinstance(totals, float):
                assert near(sum(v), totals), (name, sum(v))
            else:
                assert all(near(sum(v[i * each : (i + 1) * each]), t) for i, t in enumerate(totals)), name
        done(model, OUT, "IQ2_XXS", "--imatrix", path)
    # all heads counted together
    one = digest(OUT)
    g = Gguf(path)
    for name in [n for n in g.tensors if n.endswith(b"_b.weight.counts") and b"attn_q" not in n]:
        ne, kind, data = g.tensors[name[:-7] + b".in_sum2"]
        g.tensors[name[:-7] + b".in_sum2"] = [[ne[0] * ne[1], 1], kind, data]
        g.tensors[name] = [[1, 1], 0, g.tensors[name][2][:4]]
    g.write(path)  # the same name, which the file's keys hold
    assert digest(path) != digest(again)
    done(model, OUT, "IQ2_XXS", "--imatrix", path)
    assert digest(OUT) == one, "counts of heads say another thing in one"
    # small matrices of delta nets; and blocks that the model does not run
    mkmodel("--arch qwen35moe --layers 4 --head-dim 64 --delta-head 64 --nextn 1", model)
    imatrix(model, text, "-o", path, "--ctx", "256", "--limit", "512")
    assert {"blk.0.ssm_beta.weight", "blk.2.ssm_alpha.weight"} < set(
        sums(path)
    ) and "blk.0.ffn_gate_inp.weight" not in sums(path)
    r = done(model, OUT, "IQ2_XXS", "--imatrix", path)
    assert "next-token blocks" in r.stderr, r.stderr
    chosen = types(model, OUT, "IQ2_XXS", "--imatrix", path)
    assert chosen["blk.4.ffn_up_exps.weight"] == "Q2_K" and chosen["blk.3.ffn_up_exps.weight"] == "IQ2_XXS", chosen
    refused("says nothing about it", model, OUT, "IQ2_XXS", "--imatrix", path, "--tensor", "blk.4.ffn_up_exps=IQ2_XXS")
    for n in left():
        os.unlink(TMP + "/" + n)


def written(p):
    """The files below TMP, named or unnamed, that a process writes."""
    n = set()
    try:
        for fd in os.listdir("/proc/%d/fd" % p.pid):
            try:
                to = os.readlink("/proc/%d/fd/%s" % (p.pid, fd))
            except OSError:  # closed meanwhile
                continue
            if to.startswith(TMP + "/"):
                n.add(to)
    except OSError:
        pass
    return n


def begun(*args):
    """Starts a job, and waits until it writes."""
    p = subprocess.Popen(
        [NTX, "quantize", *args, "--threads", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    while not written(p):
        assert p.poll() is None, p.communicate()
        time.sleep(0.002)
    return p


FULL = """mount -t tmpfs -o size=$2 none "$3" || exit 77
said=$("$0" quantize "$1" "$3/out.gguf" Q8_0 2>&1) && exit 1
echo "$said"
fit=$(echo "$said" | sed -n 's/.*\\(fit:[0-9]*\\).*/\\1/p')
[ -z "$fit" ] || "$0" quantize "$1" "$3/out.gguf" $fit --quiet || exit 1
[ -z "$fit" ] || stat -c %s "$3/out.gguf"
"""


def check_full():
    """A full drive: the type that the error proposes fits, and if none fits, it proposes none."""
    os.mkdir(TMP + "/small")
    for size, fits in ((7 << 20, True), (2 << 20, False)):
        r = subprocess.run(
            ["unshare", "-rm", "sh", "-c", FULL, NTX, DEMO, str(size), TMP + "/small"],
            capture_output=True,
            text=True,
            timeout=120 * SLOW,
        )
        if r.returncode not in (0, 1):
            print("no drive of its own could be mounted: what is said of a full one was not tried")
            break
        assert r.returncode == 0 and "are free there; make room" in r.stdout and ("fit:" in r.stdout) == fits, r
        assert not fits or 0.95 * size < int(r.stdout.splitlines()[-1]) <= size, r
    os.rmdir(TMP + "/small")


def check_failures():
    """Write errors of the drive, and the user's Ctrl-C."""
    refused(
        "cannot write",
        DEMO,
        OUT,
        "Q8_0",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)),
    )
    assert left() == [], left()
    for _ in range(
        2
    ):  # killed, it leaves nothing, unless the file system has no files without names: then PID tells whose it was
        p = begun(DEMO, OUT, "IQ3_S")
        named = [n for n in written(p) if not n.endswith(" (deleted)")]
        p.kill()
        p.communicate()
        assert [TMP + "/" + n for n in left()] == named, (left(), named)
        for n in named:
            assert n == OUT + ".%d.tmp" % p.pid
            os.unlink(n)
    p = begun(DEMO, OUT, "IQ3_S")
    p.send_signal(signal.SIGINT)
    assert p.communicate(timeout=30 * SLOW) and p.returncode == -signal.SIGINT and left() == [], (p.returncode, left())
    # if a part cannot be renamed after others were, the former files are restored
    part = TMP + "/p-0000%d-of-00004.gguf"
    for i in (1, 2):
        open(part % i, "w").write("older %d" % i)
    p = begun(DEMO, TMP + "/p.gguf", "IQ3_S", "--split", "1200K")
    os.mkdir(part % 4)
    assert "p-00004-of-00004.gguf: cannot be named so" in p.communicate(timeout=60 * SLOW)[1] and p.returncode == 111
    assert [open(part % i).read() for i in (1, 2)] == ["older 1", "older 2"], left()
    assert left() == ["p-0000%d-of-00004.gguf" % i for i in (1, 2, 4)], left()
    os.rmdir(part % 4)
    done(DEMO, TMP + "/p.gguf", "IQ3_S", "--split", "1200K")
    assert left() == ["p-0000%d-of-00004.gguf" % i for i in (1, 2, 3, 4)] and os.path.getsize(part % 1) > 1 << 18, (
        left()
    )
    for n in left():
        os.unlink(TMP + "/" + n)


try:
    check_mixes()
    check_bytes()
    check_size()
    check_scales()
    check_refused()
    check_imatrix()
    check_several()
    check_failures()
    check_full()
finally:
    shutil.rmtree(TMP)
print("ok")
