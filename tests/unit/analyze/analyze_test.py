#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ntx analyze on layers with a known similarity, by construction, and on the demo model."""

import json
import math
import os
import random
import struct
import subprocess
import tempfile

NTX = os.environ["NTX_BIN"] + "/ntx"
TMP = tempfile.mkdtemp(prefix="ntx-analyze-")
IN, OUT, SCALE = 96, 64, 6.0


def string(s):
    return struct.pack("<Q", len(s)) + s.encode()


def write(path, tensors, **numbers):
    """tensors: name -> rows of floats, or a list of such (experts); numbers: keys of the architecture"""
    info, data = b"", b""
    for name, rows in tensors.items():
        experts = rows if isinstance(rows[0][0], list) else [rows]
        dims = [len(experts[0][0]), len(experts[0])] + ([len(experts)] if len(experts) > 1 else [])
        info += (
            string(name)
            + struct.pack("<I", len(dims))
            + struct.pack("<%dQ" % len(dims), *dims)
            + struct.pack("<IQ", 0, len(data))
        )
        for e in experts:
            for r in e:
                data += struct.pack("<%df" % len(r), *r)
    keys = b"".join(string("llama." + k) + struct.pack("<II", 4, v) for k, v in numbers.items())
    head = (
        b"GGUF"
        + struct.pack("<IQQ", 3, len(tensors), 1 + len(numbers))
        + string("general.architecture")
        + struct.pack("<I", 8)
        + string("llama")
        + keys
        + info
    )
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + data)


def noise(rows=OUT, n=IN):
    return [[random.gauss(0, 1) for _ in range(n)] for _ in range(rows)]


def basis(n, count):
    """Orthonormal vectors of n values."""
    out = []
    while len(out) < count:
        v = [random.gauss(0, 1) for _ in range(n)]
        for u in out + out:
            d = sum(a * b for a, b in zip(u, v))
            v = [b - d * a for a, b in zip(u, v)]
        length = math.sqrt(sum(a * a for a in v))
        out.append([a / length for a in v])
    return out


def plus(a, weights):
    """Returns a plus a matrix with these singular values."""
    u, v = basis(OUT, len(weights)), basis(IN, len(weights))
    return [
        [x + sum(w * u[k][r] * v[k][c] for k, w in enumerate(weights)) for c, x in enumerate(row)]
        for r, row in enumerate(a)
    ]


def size(m):
    return math.sqrt(sum(x * x for r in m for x in r))


def analyze(path, *more):
    r = subprocess.run(
        [NTX, "analyze", path, "--json", *more],
        capture_output=True,
        text=True,
        timeout=120 * float(os.environ["NTX_TEST_SLOW"]),
    )
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def close(a, b, to=1e-3):
    assert abs(a - b) < to, (a, b)


random.seed(4)
weights = [SCALE / (k + 1) for k in range(12)]
a = noise()
b = plus(a, weights)  # a delta of rank 12
c = b[1:] + b[:1]  # the same neurons, one on
d = c  # equal
e = noise()  # unrelated
layers = [a, b, c, d, e]
made = TMP + "/made.gguf"
write(made, {"blk.%d.ffn_up.weight" % i: m for i, m in enumerate(layers)})
found = analyze(made, "--ranks", "2,8,16", "--bound", "0.15")
p = found["pairs"]
assert [(x["a"], x["b"], x["matrix"]) for x in p] == [(i, i + 1, "ffn_up") for i in range(4)]

of = size(b)
close(p[0]["change"], math.sqrt(sum(w * w for w in weights)) / of)
close(p[0]["cosine"], sum(x * y for r, s in zip(a, b) for x, y in zip(r, s)) / (size(a) * of))
for rank, got in zip([2, 8], p[0]["by_rank"]):
    close(got, math.sqrt(sum(w * w for w in weights[rank:])) / of)
close(p[0]["by_rank"][2], 0)
assert p[0]["delta_rank"] == 2 and p[0]["delta_bytes"] == 2 * (IN + OUT) * 2, p[0]
assert p[0]["bytes"] == IN * OUT * 4 and p[0]["alone_bytes"] == OUT * (IN // 32) * 18, p[0]  # Q4_0 is within 0.15

assert abs(p[1]["cosine"]) < 0.1 and p[1]["change"] > 1.2 and p[1]["docs"] > 0.99, p[1]
assert p[1]["delta_bytes"] == p[1]["alone_bytes"] and p[1]["delta_type"] is None
assert p[2]["change"] == 0 and p[2]["delta_bytes"] == 0 and abs(p[2]["cosine"] - 1) < 1e-6
assert abs(p[3]["cosine"]) < 0.1 and abs(p[3]["docs"] - p[3]["docs_chance"]) < 0.06, p[3]
assert found["verdict"] == "little" and found["deltas"] == 2

# the bytes of a model whose layers are one base and small deltas; also with a chosen base
write(made, {"blk.%d.ffn_down.weight" % i: (a if i == 2 else plus(a, [SCALE])) for i in range(5)})
found = analyze(made, "--base", "2", "--bound", "0.02", "--ranks", "1,4")
assert [(x["a"], x["b"]) for x in found["pairs"]] == [(2, 0), (2, 1), (2, 3), (2, 4)]
assert found["verdict"] == "yes" and all(x["delta_rank"] == 1 for x in found["pairs"])
assert found["delta_bytes_per_token"] == 4 * (IN + OUT) * 2
assert all(x["docs"] > 0.9 for x in found["pairs"])  # columns are its neurons

# experts: some of each layer represent all; any number of threads gives the same result
experts = [[noise() for _ in range(6)] for _ in range(3)]
write(made, {"blk.%d.ffn_up_exps.weight" % i: m for i, m in enumerate(experts)})
found = analyze(made, "--experts", "3", "-t", "1")
assert [x["expert"] for x in found["pairs"]] == [0, 2, 4] * 2
assert found["bytes_per_token"] == 2 * 6 * IN * OUT * 4 and found["verdict"] == "no"
assert found == analyze(made, "--experts", "3", "-t", "3")
write(made, {"blk.%d.ffn_up_exps.weight" % i: m for i, m in enumerate(experts)}, expert_count=6, expert_used_count=2)
assert analyze(made, "--experts", "3")["bytes_per_token"] == 2 * 2 * IN * OUT * 4
table = subprocess.run(
    [NTX, "analyze", made, "--experts", "2", "--pairs", "--quiet"], capture_output=True, text=True, check=True
).stdout.splitlines()
assert [line.split("  ")[1] for line in table[2:6]] == [
    "0, 1, expert 0",
    "0, 1, expert 3",
    "1, 2, expert 0",
    "1, 2, expert 3",
], table
assert len({len(line.split()) for line in table[2:6]}) == 1 and float(table[2].split()[5]) > 1.2, table

# an ordinary model: the verdict is no
demo = analyze(os.environ["NTX_SOURCE"] + "/models/demo.gguf", "--ranks", "8")
assert demo["verdict"] == "no" and demo["deltas"] == 0
assert all(abs(x["cosine"]) < 0.02 and 1.2 < x["change"] < 1.6 for x in demo["pairs"]), demo

# invalid arguments and models
write(made, {"blk.0.ffn_up.weight": a})
for words, more in [("no two layers that lie 1 apart", []), ("no layer but 7", ["--base", "7"])]:
    r = subprocess.run([NTX, "analyze", made, *more], capture_output=True, text=True)
    assert r.returncode == 111 and words in r.stderr and len(r.stderr.splitlines()) == 1, r
r = subprocess.run(
    [NTX, "analyze", os.environ["NTX_SOURCE"] + "/models/demo-shared.gguf"], capture_output=True, text=True
)
assert r.returncode == 111 and "share their matrices already" in r.stderr and len(r.stderr.splitlines()) == 1, r
broken = [list(r) for r in a]
broken[5][7] = float("nan")
write(made, {"blk.0.ffn_up.weight": a, "blk.1.ffn_up.weight": broken})
r = subprocess.run([NTX, "analyze", made], capture_output=True, text=True)
assert r.returncode == 111 and "blk.1.ffn_up.weight" in r.stderr and "no number" in r.stderr, r
for bad in (["--ranks", "8,4"], ["--ranks", "300"], ["--bound", "2"]):
    assert subprocess.run([NTX, "analyze", made, *bad], capture_output=True).returncode == 100
