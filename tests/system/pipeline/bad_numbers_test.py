#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files with weights that are not finite, or with keys that ask for something that ntx does not compute.

They are refused with the tensor's or key's name, before or in the first pass; the answer is never empty.
"""

import os
import re
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, check, equal, make_model  # noqa: E402
from gguf_edit import BOOL, F32, F64, I8, I64, U32, U64, Gguf  # noqa: E402

NTX = os.path.join(BIN, "ntx")
tmp = tempfile.TemporaryDirectory(prefix="ntx-numbers-")
os.environ.update({"TMPDIR": tmp.name, "XDG_RUNTIME_DIR": ""})
SHAPE = ("--layers", "3", "--embd", "256", "--ff", "768", "--heads", "4", "--kv", "2")


def path(name):
    return os.path.join(tmp.name, name)


def run(*argv):
    p = subprocess.run([NTX, *argv], stdin=subprocess.DEVNULL, capture_output=True, timeout=120)
    return p.returncode, p.stdout, p.stderr.decode()


def answer(model, *more):
    return run("run", model, "some text", "--raw", "-n", "4", "--ctx", "64", "--ignore-eos", "--quiet", *more)


def refused(model, pattern, *more):
    code, out, err = answer(model, *more)
    equal((code, len(err.splitlines())), (111, 1), (pattern, more, out, err))
    check(re.search(pattern, err), pattern, "is not in", err)


# Where the first scale, or value, of a type lies in its block.
SCALE = {
    "F32": 0,
    "F16": 0,
    "BF16": 0,
    "Q8_0": 0,
    "Q4_0": 0,
    "Q4_K": 0,
    "Q6_K": 208,
    "MXFP4": 0,
    "IQ4_XS": 0,
    "IQ1_M": 53,
}
BAD = {
    "F32": struct.pack("<f", float("nan")),
    "BF16": b"\x80\x7f",
    "MXFP4": b"\xff",
    "IQ1_M": b"\xc0\x00\x70",
}  # else a half: infinity
BLOCKS = {
    "Q4_0": (32, 18),
    "MXFP4": (32, 17),
    "Q8_0": (32, 34),
    "Q4_K": (256, 144),
    "Q6_K": (256, 210),
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "IQ4_XS": (256, 136),
    "IQ1_M": (256, 56),
}


TYPES = {
    0: "F32",
    1: "F16",
    2: "Q4_0",
    8: "Q8_0",
    12: "Q4_K",
    14: "Q6_K",
    23: "IQ4_XS",
    29: "IQ1_M",
    30: "BF16",
    39: "MXFP4",
}


def poison(g, name, row):
    """Makes the scale of a row's last block NaN or infinite."""
    shape, number, body = g.tensors[name]
    kind = TYPES[number]
    values, size = BLOCKS[kind]
    row_bytes = shape[0] // values * size
    at = (row + 1) * row_bytes - size + SCALE[kind]
    bad = BAD.get(kind, b"\x00\x7c")
    body[at : at + len(bad)] = bad


def weights():
    for kind in ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K", "MXFP4", "IQ4_XS", "IQ1_M"):
        plain = make_model(path("m.gguf"), *SHAPE, "--type", kind)
        code, out, err = answer(plain, "--ram", "64M")
        check(code == 0 and out, "a good model of", kind, err)
        for name, row in ((b"blk.1.ffn_down.weight", 200), (b"blk.2.attn_k.weight", 0), (b"output.weight", 17)):
            g = Gguf(plain)
            poison(g, name, row)
            bent = g.write(path("bent.gguf"))
            for ram in ("64M", None):  # in memory, and streamed
                more = ("--ram", ram) if ram else ("--ram", "8M", "--chunk", "64K")
                refused(bent, "tensor '%s' holds a NaN or an infinity \\(row %d\\)" % (name.decode(), row), *more)
    g = Gguf(plain)
    poison(g, b"blk.1.attn_norm.weight", 0)
    refused(g.write(path("bent.gguf")), r"tensor 'blk\.1\.attn_norm\.weight' holds a NaN", "--ram", "64M")
    g = Gguf(plain)
    for row in range(g.tensors[b"token_embd.weight"][0][1]):
        poison(g, b"token_embd.weight", row)
    refused(g.write(path("bent.gguf")), r"tensor 'token_embd\.weight' holds a NaN", "--ram", "64M")


def experts():
    plain = make_model(path("moe.gguf"), *SHAPE, "--experts", "8", "--expert-ff", "256", "--type", "Q8_0")
    g = Gguf(plain)
    for row in range(8 * 256):
        poison(g, b"blk.1.ffn_up_exps.weight", row)
    refused(g.write(path("bent.gguf")), r"tensor 'blk\.1\.ffn_up_exps\.weight' holds a NaN", "--ram", "64M")


def tables():
    """The table of each token's experts is checked as a whole before anything is computed."""
    plain = make_model(
        path("table.gguf"),
        "--arch",
        "deepseek4",
        "--layers",
        "3",
        "--heads",
        "2",
        "--kv",
        "1",
        "--head-dim",
        "16",
        "--rotated",
        "8",
        "--q-lora",
        "16",
        "--experts",
        "8",
        "--experts-used",
        "3",
        "--expert-ff",
        "32",
        "--shared-ff",
        "32",
        "--hashed",
        "2",
        "--o-lora",
        "16",
        "--index-head",
        "16",
        "--index-heads",
        "2",
    )
    check(answer(plain, "--ram", "64M")[0] == 0, "a good table")
    name = b"blk.1.ffn_gate_tid2eid.weight"
    shape, kind, body = Gguf(plain).tensors[name]
    equal((shape[0], kind), (3, 26), "the table's rows")
    for token in (0, 100, shape[1] - 1):
        for experts, wrong in (
            ((3, 5, 3), "expert 3 twice"),
            ((7, 7, 7), "expert 7 twice"),
            ((0, 1, 8), "expert 8 of 8"),
            ((-1, 1, 2), "expert -1 of 8"),
            ((1, 0, 2**31 - 1), "expert 2147483647 of 8"),
        ):
            g = Gguf(plain)
            struct.pack_into("<3i", g.tensors[name][2], 12 * token, *experts)
            refused(
                g.write(path("bent.gguf")),
                r"tensor '%s': token %d goes through %s: the file is damaged"
                % (re.escape(name.decode()), token, wrong),
                "--ram",
                "64M",
            )
    code, out, err = answer(plain, "--also", g.write(path("bent.gguf")), "--ram", "64M")  # of copies each is read from
    check(
        code == 111 and ("goes through" in err or "not copies of one model" in err),
        "a copy with another table",
        code,
        err,
    )


def packed():
    """Groups of neurons, in memory and read on demand."""
    plain = make_model(path("m.gguf"), *SHAPE, "--arch", "llama-relu", "--type", "Q8_0")
    g = Gguf(plain)
    for row in range(768):
        poison(g, b"blk.1.ffn_up.weight", row)
    bent = path("packed.gguf")
    code, out, err = run("pack", g.write(path("bent.gguf")), bent, "--force", "--quiet")
    equal(code, 0, err)
    for more in (
        ("--ram", "64M"),
        ("--ram", "64M", "--ffn-sparse", "threshold=0"),
        ("--ram", "8M", "--chunk", "64K", "--ffn-sparse", "threshold=0"),
    ):
        refused(bent, r"tensor 'blk\.1\.ntx_ffn\.weight' holds a NaN", *more)


def overflow():
    """All weights are finite, but results overflow."""
    plain = make_model(path("f32.gguf"), *SHAPE, "--type", "F32")
    g = Gguf(plain)
    body = g.tensors[b"output_norm.weight"][2]
    body[:] = struct.pack("<f", 3e38) * (len(body) // 4)
    refused(g.write(path("bent.gguf")), "beyond what a float holds", "--ram", "64M")


def keys():
    plain = make_model(path("f32.gguf"), *SHAPE, "--type", "F32")
    for key, kind, bad, fine in (
        ("attention.scale", F32, 0.5, 0.125),
        ("logit_scale", F32, 8.0, 1.0),
        ("final_logit_softcapping", F32, 30.0, 0.0),
        ("attn_logit_softcapping", F32, 50.0, 0.0),
        ("residual_scale", F32, 0.22, 1.0),
        ("embedding_scale", F32, 12.0, 1.0),
        ("attention.causal", BOOL, False, True),
        ("use_parallel_residual", BOOL, True, False),
        ("attention.clamp_kqv", F32, 8.0, 0.0),
        ("leading_dense_block_count", U32, 1, 0),
    ):
        for value in (bad, fine):
            g = Gguf(plain)
            g.keys[("llama." + key).encode()] = (kind, value)
            bent = g.write(path("bent.gguf"))
            if value is bad:
                refused(bent, "key 'llama.%s' changes what a model computes" % re.escape(key), "--ram", "64M")
            else:
                equal(answer(bent, "--ram", "64M")[0], 0, (key, value))
    g = Gguf(plain)
    del g.keys[b"llama.attention.layer_norm_rms_epsilon"]
    refused(g.write(path("bent.gguf")), r"key 'llama\.attention\.layer_norm_rms_epsilon' is missing", "--ram", "64M")


def overlapping():
    g = Gguf(make_model(path("f32.gguf"), *SHAPE, "--type", "F32"))
    refused(g.write(path("bent.gguf"), {b"blk.0.attn_q.weight": 0}), "tensors '.*' and '.*' overlap", "--ram", "64M")


def inspected():
    import json

    g = Gguf(make_model(path("f32.gguf"), *SHAPE, "--type", "F32"))
    odd = {
        "x.nan": (F32, float("nan")),
        "x.inf": (F64, float("-inf")),
        "x.u64": (U64, 2**64 - 1),
        "x.i8": (I8, -7),
        "x.i64": (I64, -(2**63)),
        "x.f64": (F64, 1e300),
    }
    shown = {"x.nan": "nan", "x.inf": "-inf", "x.u64": str(2**64 - 1), "x.i8": -7, "x.i64": -(2**63), "x.f64": 1e300}
    for k, v in odd.items():
        g.keys[k.encode()] = v
    bent = g.write(path("bent.gguf"))
    code, out, err = run("inspect", bent, "--json")
    equal(code, 0, err)
    meta = json.loads(out)["metadata"]
    equal({k: meta[k] for k in odd}, shown, "inspect --json")
    code, out, err = run("inspect", bent)
    equal(code, 0, err)
    for line in ("x.nan +nan", "x.inf +-inf", "x.u64 +18446744073709551615", "x.i8 +-7", "x.i64 +-9223372036854775808"):
        check(re.search("(?m)^%s$" % line, out.decode()), line, "is not in", out.decode())


def small_ones():
    plain = make_model(path("f32.gguf"), *SHAPE, "--type", "F32")
    for rate in ("nan", "inf", "1e308G", "1e-300", "-1"):
        code, out, err = run("run", plain, "x", "--link", "nvme=" + rate)
        check(code == 100 and "is not a link rate" in err, "--link nvme=" + rate, code, err)
    for port in ("99999", "65536", "-1", "", "80x"):
        p = subprocess.run(
            [os.path.join(BIN, "ntx-metrics"), "--listen", "127.0.0.1:" + port], capture_output=True, timeout=30
        )
        check(p.returncode == 100 and b"the port is no number from 0 to 65535" in p.stderr, "port", port, p.stderr)
    before = set(os.listdir(tmp.name))
    for n in range(3, 12):
        p = subprocess.run(
            ["bash", "-c", 'ulimit -n %d; exec "$@"' % n, "-", NTX, "run", plain, "x", "--ram", "64M"],
            capture_output=True,
            timeout=60,
        )
        equal(p.returncode == 0, False, n)
        equal(set(os.listdir(tmp.name)) - before, set(), "left behind with %d descriptors" % n)


def limits():
    """With any limit of stack and address space: an answer, or one line that names what is short; never a signal."""
    plain = make_model(path("f32.gguf"), *SHAPE, "--type", "F32")
    if b"__asan_init" in open(NTX, "rb").read():
        return  # takes terabytes of address space
    seen = set()
    for limit in (
        "-s 128",
        "-s 256",
        "-s 500",
        "-s 600",
        "-s unlimited",
        "-v 40000",
        "-v 60000",
        "-v 70000",
        "-v 80000",
        "-v 150000",
        "-v 300000",
    ):
        p = subprocess.run(
            [
                "bash",
                "-c",
                'ulimit %s && exec "$@"' % limit,
                "-",
                NTX,
                "run",
                plain,
                "x",
                "--raw",
                "-n",
                "1",
                "--ram",
                "64M",
                "--ctx",
                "64",
                "--quiet",
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=60,
        )
        err = p.stderr.decode()
        check(
            p.returncode in (0, 111) and "signal" not in err and err.count("\n") == (p.returncode != 0),
            "ulimit",
            limit,
            p.returncode,
            err,
        )
        seen.add((limit[:2], p.returncode, "raise the limit (ulimit %s)" % limit[:2] in err))
    check({("-s", 0, False), ("-s", 111, True), ("-v", 111, True)} <= seen, "limits met", seen)
    equal([d for d in os.listdir(tmp.name) if d.startswith("ntx-run")], [], "left behind")


for part in (limits, keys, overlapping, inspected, small_ones, weights, experts, tables, packed, overflow):
    part()
print("no file with bad numbers was answered from")
