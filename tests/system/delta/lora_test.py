#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--lora: results are those of a model with the adapter merged into its matrices.

Streamed and resident; several adapters at once, each with the text that it gives alone; kept prefixes are not mixed
between adapters; adapters' names in requests; files that are refused.
"""

import concurrent.futures
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from gateway import Gateway  # noqa: E402
from gguf_edit import F32, STR, Gguf  # noqa: E402

BIN = os.environ["NTX_BIN"]
SLOW = float(os.environ["NTX_TEST_SLOW"])
TMP = tempfile.mkdtemp(prefix="ntx-lora-")
LAYERS = 3
IDS = "5,9,3,20,41,7"
random.seed(11)


def path(name):
    return TMP + "/" + name


def run(*args, **more):
    return subprocess.run([BIN + "/ntx", *args], capture_output=True, text=True, timeout=120 * SLOW, **more)


def must(*args, **more):
    r = run(*args, **more)
    assert r.returncode == 0, r
    return r.stdout


def values(t):
    shape, kind, data = t
    rows = struct.unpack("<%df" % (shape[0] * shape[1]), bytes(data))
    return [rows[i : i + shape[0]] for i in range(0, len(rows), shape[0])]


def floats(rows):
    return [[len(rows[0]), len(rows)], 0, bytearray(b"".join(struct.pack("<%df" % len(r), *r) for r in rows))]


def adapter(name, kinds, rank, alpha):
    """Returns the adapter's file and the file of the model with the adapter merged."""
    a, m = Gguf(path("base.gguf")), Gguf(path("base.gguf"))
    a.keys = {
        b"general.architecture": (STR, b"llama"),
        b"general.type": (STR, b"adapter"),
        b"adapter.type": (STR, b"lora"),
        b"adapter.lora.alpha": (F32, alpha),
    }
    a.tensors = {}
    for l in range(LAYERS):
        for kind in kinds:
            n = b"blk.%d.%s.weight" % (l, kind)
            w = [list(r) for r in values(m.tensors[n])]
            A = [[random.gauss(0, 0.3) for _ in w[0]] for _ in range(rank)]
            B = [[random.gauss(0, 0.1) for _ in range(rank)] for _ in w]
            for row, left in zip(w, B):
                for x, thin in zip(left, A):
                    for i, t in enumerate(thin):
                        row[i] += alpha / rank * x * t
            a.tensors[n + b".lora_a"], a.tensors[n + b".lora_b"], m.tensors[n] = floats(A), floats(B), floats(w)
    a.write(path(name + ".gguf"))
    m.write(path(name + "-merged.gguf"))


def logits(model, *more):
    must("logits", model, "--tokens", IDS, "-o", path("logits"), "--ctx", "64", "--quiet", *more)
    return open(path("logits"), "rb").read()


def near(x, y, bound):
    x, y = (struct.unpack("<%df" % (len(b) // 4), b) for b in (x, y))
    d = (sum((a - b) ** 2 for a, b in zip(x, y)) / sum(b * b for b in y)) ** 0.5
    assert d < bound, d


ask = ["-n", "12", "--temp", "0", "--raw", "--ignore-eos", "--quiet"]


def refused(words, *lora):
    r = run("run", path("base.gguf"), "a", "-n", "1", "--raw", "--ctx", "64", "--quiet", *lora)
    assert r.returncode == 111 and words in r.stderr and len(r.stderr.strip().splitlines()) == 1, r


subprocess.run(
    [
        BIN + "/ntx-mkmodel",
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
        path("base.gguf"),
    ],
    check=True,
    capture_output=True,
)
adapter("all", [b"attn_q", b"attn_k", b"attn_v", b"attn_output", b"ffn_gate", b"ffn_up", b"ffn_down"], 4, 8.0)
adapter("some", [b"attn_q", b"attn_v"], 3, 6.0)
BASE, ALL, SOME = path("base.gguf"), path("all.gguf"), path("some.gguf")

# Values: those of the merged model, up to the rounding of K and V. A request that names no adapter gets the first. No
# bit depends on the other adapters, nor on memory.
plain, alone = logits(BASE), {n: logits(BASE, "--lora", path(n + ".gguf")) for n in ("all", "some")}
for n in alone:
    near(alone[n], logits(path(n + "-merged.gguf")), 2e-4)
    assert alone[n] != plain
assert (
    logits(BASE, "--lora", SOME + "," + ALL) == alone["some"]
    and logits(BASE, "--lora", ALL + "," + SOME, "--threads", "1") == alone["all"]
)
demo = os.environ["NTX_SOURCE"] + "/models/demo.gguf"
g = Gguf(SOME)
g.tensors = {
    b"blk.%d.ffn_up.weight.lora_%c" % (l, c): floats([[random.gauss(0, 0.4) for _ in range(x)] for _ in range(y)])
    for l in range(12)
    for c, x, y in ((97, 256, 4), (98, 4, 512))
}
g.write(path("demo.gguf"))
resident = must("run", demo, "Once upon", *ask, "--ctx", "64", "--lora", path("demo.gguf"))
assert (
    must(
        "run",
        demo,
        "Once upon",
        *ask,
        "--ctx",
        "64",
        "--lora",
        path("demo.gguf"),
        "--ram",
        "9M",
        "--stats",
        path("stats"),
    )
    == resident
    != must("run", demo, "Once upon", *ask, "--ctx", "64")
)
assert json.load(open(path("stats")))["bytes_storage"] > 4 << 20

# Several at once: each text is the one that it is alone. The prompt is always the same, so that a kept prefix of
# another adapter would be found if they were mixed.
ways = {"base": [], "all": ["--lora", ALL], "some": ["--lora", SOME]}
PROMPT = "abc def ghi jkl " * 3
want = {n: must("run", BASE, PROMPT, *ask, "--ctx", "128", *more) for n, more in ways.items()}
assert len(set(want.values())) == 3, want
env = dict(os.environ, NTX_RUNTIME=path("run"))
os.mkdir(path("run"), 0o700)
up = subprocess.Popen(
    [BIN + "/ntx", "up", BASE, "--lora", "all=%s,%s" % (ALL, SOME), "--sessions", "6", "--ctx", "128", "--quiet"],
    env=env,
    stdin=subprocess.DEVNULL,
)
try:
    end = time.monotonic() + 60 * SLOW
    while (
        '"adapters"' not in run("status", "--json", env=env).stdout and time.monotonic() < end
    ):  # daemons first, then the model
        time.sleep(0.05)

    def generate(name):
        return must("generate", PROMPT, *ask, "--adapter", name, env=env)

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        names = ["base", "all", "some"] * 4
        for name, text in zip(names, pool.map(generate, names)):
            assert text == want[name], (name, text, want)
    assert must("generate", PROMPT, *ask, env=env) == want["all"]
    must("generate", PROMPT, *ask, "--adapter", "some", "--stats", path("stats"), env=env)
    stats = json.load(open(path("stats")))
    assert (
        stats["adapters"] == ["all", "some"] and stats["options"]["adapter"] == "some" and stats["cached_tokens"] > 0
    ), stats
    r = run("generate", PROMPT, *ask, "--adapter", "none", env=env)
    assert r.returncode == 111 and "no adapter 'none'" in r.stderr, r
finally:
    run("stop", env=env)
    up.wait(60 * SLOW)


# With other options that must not change a text: each adapter's text stays the same, also after a text of another
# adapter.
def same(name, *more, model=BASE, prompt=PROMPT, ctx="128"):
    r = must("run", model, prompt, *ask, "--ctx", ctx, *ways[name], *more, "--stats", path("stats"))
    assert r == want[name], (name, more, r, want[name])
    return json.load(open(path("stats")))


same("some", "--draft", "lookup")
assert (
    same("all", "--draft", BASE, "--draft-nodes", "4")["draft_nodes_per_pass"] > 0
)  # by a model that knows of no adapter
fake = os.environ["NTX_BUILD"] + "/tests/libntx-gpu-fake.so"
if os.path.exists(fake):
    os.environ.update(NTX_CUDA_LIBRARY=fake, NTX_FAKE_GPU_NO_DENSE="1")
    for name in ways:
        r = must(
            "logits",
            BASE,
            "--tokens",
            IDS,
            "-o",
            path("logits"),
            "--ctx",
            "64",
            "--quiet",
            "--backend",
            "cuda",
            *ways[name],
        )
        assert open(path("logits"), "rb").read() == {"base": plain, **alone}[name], name
    for key in ("NTX_CUDA_LIBRARY", "NTX_FAKE_GPU_NO_DENSE"):
        del os.environ[key]
if shutil.which("mpirun"):
    r = subprocess.run(
        [
            "mpirun",
            "--oversubscribe",
            *(["--allow-run-as-root"] if os.getuid() == 0 else []),
            "-n",
            "2",
            BIN + "/ntx",
            "up",
            BASE,
            "--lora",
            ALL,
            "--quiet",
        ],
        capture_output=True,
        text=True,
        timeout=120 * SLOW,
        env=dict(os.environ, NTX_RUNTIME=""),
    )
    assert r.returncode != 0 and "--lora: adapters run on one machine only" in r.stderr, r
with open(os.path.join(os.environ["NTX_SOURCE"], "models/held-out.txt")) as held, open(path("long.txt"), "w") as long:
    long.write(held.read(4000))
g = Gguf(path("demo.gguf"))
g.tensors = {
    n: floats([[-v for v in row] for row in values(t)]) if n.endswith(b"a") else t for n, t in g.tensors.items()
}
g.write(path("less.gguf"))


def long_text(way, *more):
    r = must(
        "run",
        demo,
        "-f",
        path("long.txt"),
        *ask,
        "--ctx",
        "2048",
        *(["--lora", path(way + ".gguf")] if way else []),
        "--stats",
        path("stats"),
        *more,
    )
    return r, json.load(open(path("stats")))


long = {way: long_text(way)[0] for way in ("", "demo", "less")}
assert len(set(long.values())) == 3, long
os.mkdir(path("kept"))
for way in long:
    text, stats = long_text(way, "--state", path("kept"))
    assert text == long[way] and stats["cached_tokens"] == 0, (way, text, stats)  # of the others' files nothing fits
for way in long:
    text, stats = long_text(way, "--state", path("kept"))
    assert text == long[way] and stats["cached_tokens"] > 500, (way, text, stats)
os.mkdir(path("kv"))
text, stats = long_text("demo", "--kv-ram", "6M", "--state", path("kv"))
assert text == long["demo"] and stats["kv_ram"] > 0, stats

# A service with adapters in its configuration; over HTTP the adapter's name follows that of the model.
runtime = path("service")
os.mkdir(runtime, 0o700)
open(path("ntx.conf"), "w").write("[model]\npath = %s\nctx = 128\nsessions = 3\nlora = all=%s,%s\n" % (BASE, ALL, SOME))
env = dict(os.environ, NTX_RUNTIME=runtime)
log = open(path("log"), "w")
daemons = [
    subprocess.Popen([BIN + "/" + name, "--runtime", runtime, *more], stderr=log, stdin=subprocess.DEVNULL)
    for name, more in (
        ("ntx-computed", ["--service", "--config", path("ntx.conf")]),
        ("ntx-iod", []),
        ("ntx-predictor", []),
    )
]


class Place:
    dir = runtime


try:
    end = time.monotonic() + 60 * SLOW
    while '"adapters"' not in run("status", "--json", env=env).stdout and time.monotonic() < end:
        time.sleep(0.05)
    for name in ("all", "base", "some", "all"):
        assert must("generate", PROMPT, *ask, "--adapter", name, env=env) == want[name], name
    with Gateway(Place) as g:
        body = {"prompt": PROMPT, "max_tokens": 12, "temperature": 0, "stream": False}
        for name, model in (("some", "base.gguf:some"), ("some", "some"), ("base", "x:base"), ("all", "x")):
            status, answer = g.post("/v1/completions", dict(body, model=model, ignore_eos=True))
            assert status == 200 and answer["choices"][0]["text"] == want[name].rstrip("\n"), (
                model,
                status,
                answer,
                want[name],
            )
        for url in ("/v1/completions", "/v1/chat/completions", "/v1/messages"):
            status, answer = g.post(
                url,
                {
                    "model": "x:none",
                    "max_tokens": 3,
                    **(
                        {"prompt": "a"}
                        if "completions" in url and "chat" not in url
                        else {"messages": [{"role": "user", "content": "a"}]}
                    ),
                },
            )
            assert (
                status == 400
                and "there is no adapter 'none'" in json.dumps(answer)
                and "the first of 2 is 'all'" in json.dumps(answer)
            ), (url, status, answer)
finally:
    for p in daemons:
        p.terminate()
    for p in daemons:
        p.wait(60 * SLOW)
# Refusals: no adapter, one of another model, one without targets, half of a pair, other shapes, two of one name.
refused("is no adapter", "--lora", "x=" + BASE)
refused("No such file", "--lora", path("none.gguf"))
refused("two adapters are called", "--lora", "x=%s,x=%s" % (ALL, SOME))
refused("is not 'base'", "--lora", "base=" + ALL)


def bent(change):
    g = Gguf(SOME)
    change(g)
    g.write(path("bent.gguf"))
    return ["--lora", path("bent.gguf")]


def rename(g, of, to):
    g.tensors[to] = g.tensors.pop(of)


Q = b"blk.0.attn_q.weight"
refused("another architecture", *bent(lambda g: g.keys.update({b"general.architecture": (STR, b"qwen3")})))
refused("not of the type 'lora'", *bent(lambda g: g.keys.update({b"adapter.type": (STR, b"ia3")})))
refused("no number", *bent(lambda g: g.keys.update({b"adapter.lora.alpha": (F32, float("nan"))})))
refused(
    "another model than this one (ntx.delta.of)", *bent(lambda g: g.keys.update({b"ntx.delta.of": (STR, b"0" * 32)}))
)
refused("has no place", *bent(lambda g: rename(g, Q + b".lora_a", b"output.weight.lora_a")))
refused("do not go together", "--lora", ALL, "--also", BASE)
refused(Q.decode() + ".lora_b", *bent(lambda g: g.tensors.pop(Q + b".lora_b")))
refused("has no place", *bent(lambda g: g.tensors.pop(Q + b".lora_a")))
refused("blk.0.attn_q", *bent(lambda g: g.tensors.update({Q + b".lora_a": floats([[0.0] * 32] * 3)})))
refused("blk.0.attn_q", *bent(lambda g: g.tensors.update({Q + b".lora_b": floats([[0.0] * 4] * 64)})))
r = run("run", SOME, "a")
assert r.returncode == 111 and "--lora" in r.stderr, r
shutil.rmtree(TMP)
