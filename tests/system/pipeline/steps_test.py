#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ntx logits --steps`: the record of each step does not depend on budget, threads or passes.

A changed weight is found at its layer and step; files that are no such lists are refused in one line.
"""

import base64
import json
import os
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, check, equal  # noqa: E402
from gguf_edit import Gguf  # noqa: E402

tmp = tempfile.TemporaryDirectory(prefix="ntx-steps-")
os.environ.update({"TMPDIR": tmp.name, "XDG_RUNTIME_DIR": ""})
IDS = "5,6,7,300,9,1,2"


def path(name):
    return os.path.join(tmp.name, name)


def run(*argv):
    p = subprocess.run(
        [os.path.join(BIN, argv[0]), *argv[1:]], stdin=subprocess.DEVNULL, capture_output=True, timeout=120
    )
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def must(*argv):
    code, out, err = run(*argv)
    check(not code, argv, err)
    return out


def steps(model, name, *options):
    must("ntx", "logits", model, "--tokens", IDS, "--steps", path(name), "--ctx", "64", "--quiet", *options)
    return path(name)


def compare(a, b, *options):
    code, out, err = run("ntx", "logits", "--compare", a, b, *options)
    check(code in (0, 1) and not err, code, out, err)
    return code, out


def lines(name):
    return [json.loads(line) for line in open(name)]


def made(name, *options):
    must("ntx-mkmodel", "--layers", "3", "--embd", "256", "--heads", "4", "--kv", "2", *options, path(name))
    return path(name)


def same_everywhere(model, what, *options):
    want = steps(model, what + ".1", "--ram", "1G", *options)
    for i, more in enumerate(
        (("--threads", "1"), ("--rows", "2"), ("--chunk", "16K", "--ring", "4", "--ram", "9M"), ("--kernel", "generic"))
    ):
        got = steps(model, what + ".2", *options, *more)
        code, out = compare(want, got)
        equal((code, out), (0, "the same: %d steps of 7 tokens\n" % len(lines(want))), (what, more))
    return lines(want)


def everywhere():
    dense = made("dense.gguf", "--ff", "512", "--type", "Q4_K_M")
    names = [(s["layer"], s["name"], s["buffer"]) for s in same_everywhere(dense, "dense")]
    equal(names[0], (0, "EMBED", "H"), "first")
    equal(names[-1], (3, "OUTPUT", "LOGITS"), "last")
    equal(
        [n[1:] for n in names if n[0] == 1],
        [
            ("NORM attn_norm.weight", "X"),
            ("MM attn_q.weight", "Q"),
            ("MM attn_k.weight", "K"),
            ("MM attn_v.weight", "V"),
            ("ROPE", "Q"),
            ("ROPE", "K"),
            ("ATTEND", "ATTN"),
            ("MM attn_output.weight", "Y"),
            ("ADD", "H"),
            ("NORM ffn_norm.weight", "X"),
            ("MM ffn_gate.weight", "GATE"),
            ("MM ffn_up.weight", "UP"),
            ("GLU", "GATE"),
            ("MM ffn_down.weight", "Y"),
            ("ADD", "H"),
        ],
        "layer 1",
    )
    routed = same_everywhere(
        made(
            "experts.gguf",
            "--arch",
            "qwen3moe",
            "--experts",
            "6",
            "--experts-used",
            "2",
            "--expert-ff",
            "256",
            "--type",
            "Q8_0",
        ),
        "experts",
    )
    check(
        ("ROUTE", "EXPERTS", 2) in [(s["name"], s["buffer"], s["width"]) for s in routed],
        "the experts that were chosen",
        routed[0],
    )
    must("ntx", "pack", dense, path("packed.gguf"), "--group", "4K", "--force", "--quiet")
    check(any(s["name"].startswith("GROUPS") for s in same_everywhere(path("packed.gguf"), "packed")), "a packed FFN")


def values():
    """The values have the recorded digests, and the last ones are the logits."""
    model = made("values.gguf", "--ff", "512")
    logits = path("logits")
    got = lines(steps(model, "v", "--step-values", "-o", logits))
    rows = [struct.unpack("<%df" % got[-1]["width"], base64.b64decode(v, validate=True)) for v in got[-1]["values"]]
    equal(b"".join(struct.pack("<%df" % len(r), *r) for r in rows), open(logits, "rb").read(), "logits")
    for s in got:
        all_of = [x for v in s["values"] for x in struct.unpack("<%df" % s["width"], base64.b64decode(v))]
        equal(
            (len(all_of), s["min"], s["max"]),
            (7 * s["width"], float("%.9g" % min(all_of)), float("%.9g" % max(all_of))),
            s["name"],
        )
        check(abs(s["mean"] - sum(all_of) / len(all_of)) < 1e-6, s["name"], s["mean"])


def one_weight():
    model = made("one.gguf", "--ff", "512")
    want = steps(model, "one.1", "--step-values")
    for tensor, where in (
        ("blk.1.ffn_up.weight", "layer 1, step 12: MM ffn_up.weight -> UP"),
        ("blk.2.attn_norm.weight", "layer 2, step 0: NORM attn_norm.weight -> X"),
        ("blk.0.attn_v.weight", "layer 0, step 3: MM attn_v.weight -> V"),
        ("output.weight", "OUTPUT -> LOGITS"),
    ):
        g = Gguf(model)
        body = g.tensors[tensor.encode()][2]
        body[0:4] = struct.pack("<f", struct.unpack("<f", body[0:4])[0] * 1.01 + 0.001)
        got = steps(g.write(path("bent.gguf")), "one.2", "--step-values")
        code, out = compare(want, got)
        equal((code, out.startswith("they part: " + where)), (1, True), (where, out))
        code, out = compare(want, got, "--tolerance", "10")
        equal((code, out), (0, "the same within the tolerance: %d steps of 7 tokens\n" % len(lines(want))), where)
        check(compare(want, got, "--tolerance", "1e-9")[0] == 1, where)
    code, out, err = run("ntx", "logits", "--compare", want, steps(path("bent.gguf"), "bare"), "--tolerance", "0.1")
    equal((code, "--step-values" in err, len(err.splitlines())), (111, True, 1), err)


def hostile():
    good = lines(steps(path("one.gguf"), "good", "--step-values"))[:3]
    bent = [("no JSON", b"\0\1\2"), ("an array", b"[1]\n"), ("nothing", b"")]
    for key, bad in (
        ("layer", -1),
        ("layer", "x"),
        ("step", 1 << 40),
        ("width", 1 << 30),
        ("width", 255),
        ("name", 5),
        ("name", "x" * 64),
        ("name", "a\0b"),
        ("buffer", None),
        ("min", "x"),
        ("digests", []),
        ("digests", ["00"]),
        ("digests", ["g" * 16] * 7),
        ("digests", 3),
        ("values", ["AAAA"] * 7),
        ("values", [5] * 7),
        ("values", []),
    ):
        bent.append(
            ("%s %r" % (key, bad), "\n".join(json.dumps(s) for s in [good[0], dict(good[1], **{key: bad})]).encode())
        )
    bent.append(("twice", "\n".join(json.dumps(s) for s in [good[0], good[0]]).encode()))
    for what, body in bent:
        open(path("bad"), "wb").write(body)
        for pair in ((path("bad"), path("good")), (path("good"), path("bad"))):
            code, out, err = run("ntx", "logits", "--compare", *pair)
            equal((code, out, len(err.splitlines())), (111, "", 1), (what, out, err))
            check(path("bad") in err, what, err)
    code, _, err = run("ntx", "logits", "--compare", path("none"), path("good"))
    equal((code, len(err.splitlines())), (111, 1), err)


everywhere()
values()
one_weight()
hostile()
print("steps: the same everywhere, found where they part, refused where they are none")
