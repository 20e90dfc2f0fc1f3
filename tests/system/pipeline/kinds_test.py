#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""GGUF files that are no language models, and files whose keys are wrong.

Every command answers the former in one line, with what the file is and what to name instead. --override-kv repairs keys
that are wrong or missing; a file whose name contradicts its keys is reported.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, check, equal, make_model  # noqa: E402
from gguf_edit import ARR, BOOL, F32, STR, U32, Gguf  # noqa: E402

NTX = os.path.join(BIN, "ntx")
PROFILE = os.path.join(os.environ["NTX_SOURCE"], "bench", "profiles", "rtx3090-pcie3x8.json")
tmp = tempfile.TemporaryDirectory(prefix="ntx-kinds-")
os.environ.update(
    {"TMPDIR": tmp.name, "XDG_RUNTIME_DIR": "", "XDG_CACHE_HOME": os.path.join(tmp.name, "none"), "NTX_PROFILE": ""}
)
SHAPE = ("--layers", "2", "--embd", "256", "--ff", "512", "--heads", "4", "--kv", "2", "--type", "Q8_0")


def path(name):
    return os.path.join(tmp.name, name)


def run(*argv, stdin=b""):
    p = subprocess.run([NTX, *argv], input=stdin, capture_output=True, timeout=120)
    return p.returncode, p.stdout, p.stderr.decode()


plain = make_model(path("m.gguf"), "--arch", "qwen3", *SHAPE)
with open(path("asked"), "w", encoding="utf-8") as f:
    f.write('{"prompt": "a", "answer": "b"}\n')
with open(path("text"), "w", encoding="utf-8") as f:
    f.write("some words to look at, and then some more of them. " * 40)


def made(name, **keys):
    g = Gguf(plain)
    g.keys[b"general.type"] = (STR, b"model")
    for k, v in keys.items():
        g.keys[k.replace("__", ".").encode()] = v
    return g.write(path(name))


def commands(model):
    text, out = path("text"), path("out.gguf")
    return (
        ("run", model, "x", "--raw"),
        ("up", model),
        ("serve", model),
        ("bench", model),
        ("plan", model),
        ("plan", model, "--profile", PROFILE),
        ("logits", model, "--tokens", "1", "-o", out),
        ("perplexity", model, text),
        ("calibrate", model, "--text", text, "-o", out),
        ("pack", model, out),
        ("analyze", model),
        ("imatrix", model, text, "-o", out),
        ("draft-index", model, text, "-o", out),
        ("eval", model, "--questions", path("asked")),
        ("tokenize", model),
        ("detokenize", model),
    )


WRITES = "name a model that writes text"
KINDS = {
    "mmproj": (
        {"general__type": (STR, b"mmproj"), "general__architecture": (STR, b"clip")},
        (
            "is the part of a model that reads images or sounds (mmproj): name the file of the language model that it"
            " is for"
        ),
    ),
    "imatrix": (
        {"general__type": (STR, b"imatrix")},
        "is an importance matrix: name the model, and this file with ntx quantize --imatrix",
    ),
    "adapter": (
        {"general__type": (STR, b"adapter")},
        "is an adapter: name the model that it is for, and this file with --lora",
    ),
    "vocab": ({"general__type": (STR, b"vocab")}, "has a vocabulary and no weights: name the model's own file"),
    "skip": (
        {"general__architecture": (STR, b"ntx-skip")},
        "is a sidecar of ntx calibrate: name its model, and this file with --sidecar",
    ),
    "bert": (
        {"general__architecture": (STR, b"bert")},
        "is an embedding model: it makes a vector of a text and writes none; " + WRITES,
    ),
    "nomic": (
        {"general__architecture": (STR, b"nomic-bert-moe")},
        "is an embedding model: it makes a vector of a text and writes none; " + WRITES,
    ),
    "t5": (
        {"general__architecture": (STR, b"t5")},
        "is an encoder with a decoder behind it, of which ntx runs neither: name a model that is a decoder alone",
    ),
    "whisper": ({"general__architecture": (STR, b"whisper")}, "is a model of speech: " + WRITES),
    "flux": ({"general__architecture": (STR, b"flux")}, "is a model that makes pictures or films: " + WRITES),
}
for value, name, what, does in (
    (1, "mean", "an embedding model", "makes a vector of a text"),
    (2, "cls", "an embedding model", "makes a vector of a text"),
    (3, "last", "an embedding model", "makes a vector of a text"),
    (4, "rank", "a reranker", "tells how well a text answers a question"),
):
    KINDS[name] = (
        {"qwen3__pooling_type": (U32, value)},
        "is %s (key 'qwen3.pooling_type' is %d, %s): it %s and writes none; %s; --override-kv qwen3.pooling_type=int:0"
        " runs it all the same" % (what, value, name, does, WRITES),
    )


def kinds():
    for name, (keys, line) in KINDS.items():
        model = made(name + ".gguf", **keys)
        want = "ntx: %s: this GGUF %s\n" % (model, line)
        for argv in commands(model) if name in ("mmproj", "imatrix", "last", "bert") else commands(model)[:7]:
            if name == "vocab" and argv[0] in ("tokenize", "detokenize"):
                continue
            equal(run(*argv), (111, b"", want), argv)
        code, out, err = run("inspect", model)
        equal((code, err), (0, want), "inspect")
        check(b"general.architecture" in out, "inspect shows keys", out)
        j = json.loads(run("inspect", model, "--json")[1])
        equal((j["supported"], j["why"]), (False, want[5:-1]), "inspect --json")
        nothing = name in ("imatrix", "adapter", "vocab", "skip")  # to rewrite
        code, out, err = run("quantize", model, path("q.gguf"), "Q4_0")
        equal((code, want in err), (111 if nothing else 0, True), ("quantize", name, err))
    equal(
        run("tokenize", path("vocab.gguf"), stdin=b"some words")[:2],
        run("tokenize", plain, stdin=b"some words")[:2],
        "a vocabulary's tokens",
    )
    code, out, err = run(
        "run",
        path("last.gguf"),
        "x",
        "--raw",
        "-n",
        "2",
        "--override-kv",
        "qwen3.pooling_type=int:0",
        "--ram",
        "64M",
        "--quiet",
    )
    check(code == 0 and out and not err, "run all the same", err)
    equal(json.loads(run("inspect", plain, "--json")[1])["supported"], True, "inspect of a model")


def unknown():
    model = made("new.gguf", general__architecture=(STR, b"qwen9"))
    line = "architecture 'qwen9' is not supported; `ntx plan --list` has those that are"
    equal(run("run", model, "x")[::2], (111, "ntx: %s\n" % line), "run")
    code, out, err = run("inspect", model)
    equal((code, err), (0, "ntx: %s: ntx does not run this file: %s\n" % (model, line)), "inspect")
    named = make_model(path("odd.gguf"), "--arch", "llama", *SHAPE)
    g = Gguf(named)
    g.keys[b"general.architecture"] = (STR, b"lxama")
    for k in [k for k in g.keys if k.startswith(b"llama.")]:
        g.keys[k.replace(b"llama", b"lxama")] = g.keys.pop(k)
    odd = g.write(path("odd.gguf"))
    code, out, err = run("plan", odd)
    check(
        code == 0
        and out.startswith(b"ntx does not run this file: architecture 'lxama' is not supported")
        and b"Fits" not in out,
        out,
        err,
    )
    code, out, err = run("plan", odd, "--profile", PROFILE)
    check(
        code == 0
        and out.startswith(b"ntx does not run this file: architecture 'lxama' is not supported")
        and b"Fits" not in out,
        out,
        err,
    )
    code, out, err = run("plan", "--list")
    check(
        code == 0
        and re.search(rb"general\.architecture[^A-Z]* qwen3moe[^A-Z]* deepseek4", out)
        and b"llama-relu" not in out,
        out,
    )
    names = json.loads(run("plan", "--list", "--json")[1])["architectures"]
    check("llama" in names and "qwen4exp" in names and "llama-relu" not in names, names)


def tokens(model, *more):
    code, out, err = run("tokenize", model, *more, stdin=b'He said, "Once upon a time," in 1984.')
    equal(code, 0, err)
    return json.loads(out), err


def before_pre():
    """Files from before May 2024 do not name their pre-tokenizer."""
    demo = os.path.join(os.environ["NTX_SOURCE"], "models", "demo.gguf")
    g = Gguf(demo)
    pre = g.keys.pop(b"tokenizer.ggml.pre")[1].decode()
    bare = g.write(path("bare.gguf"))
    g.keys[b"tokenizer.ggml.pre"] = (STR, b"default")
    default = g.write(path("default.gguf"))
    note = "`default` is taken, as llama.cpp does"
    ids, err = tokens(bare)
    equal(ids, tokens(default)[0], "the default")
    check(note in err and err.count("\n") == 1, err)
    equal(tokens(bare, "--override-kv", "tokenizer.ggml.pre=str:" + pre)[0], tokens(demo)[0], "the right one")
    check(tokens(demo)[0] != ids, "the default cuts otherwise")
    ask = ("x y z", "--raw", "-n", "4", "--temp", "0", "--ram", "64M", "--ctx", "64")
    code, out, err = run("run", bare, *ask)
    equal((code, note in err), (0, True), err)
    equal(out, run("run", default, *ask)[1], "what it writes")
    code, mended, err = run("run", bare, *ask, "--override-kv", "tokenizer.ggml.pre=str:" + pre)
    equal((code, mended, note in err), (0, run("run", demo, *ask)[1], False), err)
    check("the file has no key 'tokenizer.ggml.pre'; it is added" in err, err)


def overrides():
    # The daemons use the overrides, too: the numbers change as if they were in the file.
    g = Gguf(plain)
    g.keys[b"qwen3.rope.freq_base"] = (F32, 500000.0)
    g.keys[b"qwen3.context_length"] = (U32, 100)
    g.keys[b"tokenizer.ggml.add_bos_token"] = (BOOL, True)
    other = g.write(path("other.gguf"))
    given = (
        "--override-kv",
        "qwen3.rope.freq_base=float:500000",
        "--override-kv",
        "qwen3.context_length=int:100,tokenizer.ggml.add_bos_token=bool:true",
        "--quiet",
    )

    def logits(model, *more):
        code, out, err = run(
            "logits", model, "--tokens", "1,5,9,7,3,2,8", "-o", path("out.f32"), "--ram", "64M", "--ctx", "64", *more
        )
        equal(code, 0, err)
        return open(path("out.f32"), "rb").read()

    check(logits(other) != logits(plain), "the base of rotation changes logits")
    check(logits(plain, *given) == logits(other), "logits with --override-kv")
    shown = json.loads(run("inspect", plain, "--json", *given[:4])[1])["metadata"]
    equal(
        (shown["qwen3.rope.freq_base"], shown["qwen3.context_length"], shown["tokenizer.ggml.add_bos_token"]),
        (500000, 100, True),
        "inspect",
    )
    equal(json.loads(run("plan", plain, "--profile", PROFILE, "--json", *given[:4])[1])["ctx"], 100, "plan")
    equal(run("quantize", plain, path("mended.gguf"), "Q4_0", *given)[0], 0, "quantize")
    shown = json.loads(run("inspect", path("mended.gguf"), "--json")[1])["metadata"]
    equal((shown["qwen3.rope.freq_base"], shown["qwen3.context_length"]), (500000, 100), "what ntx quantize wrote")
    for bad, why in (
        ("x", "write KEY=TYPE:VALUE"),
        ("x=1", "write KEY=TYPE:VALUE"),
        ("x=int:", "no whole number"),
        ("x=int:1.5", "no whole number"),
        ("x=float:a", "no number"),
        ("x=bool:yes", "true or false"),
        ("x=u32:1", "write KEY=TYPE:VALUE"),
        ("x y=int:1", "no spaces"),
        ("x=int:1,y", "no whole number"),
        ("general.alignment=int:64", "how the file is read"),
    ):
        code, out, err = run("run", plain, "x", "--override-kv", bad)
        check(code == 100 and why in err, bad, code, err)
    code, out, err = run("run", plain, "x", "--override-kv", "qwen3.block_count=int:-1", "--ram", "64M")
    check(code == 111 and "qwen3.block_count" in err, err)
    demo = os.path.join(os.environ["NTX_SOURCE"], "models", "demo.gguf")
    code, out, err = run("tokenize", demo, "--override-kv", "tokenizer.ggml.pre=int:5", stdin=b"x")
    check(code == 111 and "tokenizer.ggml.pre is not a string" in err, code, err)
    base = make_model(path("base.gguf"), "--arch", "qwen3", *SHAPE, "--seed", "5")  # a second file keeps its own keys
    delta = ("pack", plain, path("l.gguf"), "--delta", "--base", base, "--force", "--rank", "4")
    code, out, err = run(*delta, "--override-kv", "a.new.key=int:1")
    equal((code, err.count("the file has no key 'a.new.key'; it is added")), (0, 1), err)
    equal(
        json.loads(run("inspect", plain, "--json", "--override-kv", "general.name=str:a, b=c")[1])["metadata"][
            "general.name"
        ],
        "a, b=c",
        "a text with a comma",
    )


def names():
    """A file's keys count, not its name."""
    for name in ("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "mmproj-F16.gguf", "m.imatrix", "m-Q2_K.skip.gguf"):
        os.link(plain, path(name))
        equal(run("inspect", path(name))[::2], (0, ""), name)
        equal(run("run", path(name), "x", "--raw", "-n", "1", "--ram", "64M", "--ctx", "64", "--quiet")[0], 0, name)


def opens(what, model):
    code, out, err = run("inspect", model)
    equal((code, err), (0, ""), what)
    code, out, err = run("run", model, "x", "--raw", "-n", "1", "--ram", "64M", "--ctx", "64", "--quiet")
    equal(code, 0, (what, err))


def written():
    """ntx opens the files that other tools wrote."""
    relu = make_model(path("relu.gguf"), "--arch", "llama-relu", *SHAPE)
    text = path("text")
    opens("ntx-mkmodel", relu)
    for kind in ("F16", "Q8_0", "Q4_K_M", "IQ4_XS", "Q3_K_S"):
        equal(run("quantize", plain, path("w.gguf"), kind)[0], 0, kind)
        opens("quantize " + kind, path("w.gguf"))
    equal(run("quantize", plain, path("s.gguf"), "Q8_0", "--split", "1M")[0], 0, "quantize --split")
    first = [n for n in os.listdir(tmp.name) if n.startswith("s-00001-of-")]
    opens("quantize --split", path(first[0] if first else "s.gguf"))
    code, out, err = run("pack", relu, path("p.gguf"), "--group", "4K", "--force", "--quiet")
    equal(code, 0, err)
    opens("pack", path("p.gguf"))
    code, out, err = run("pack", plain, path("d.gguf"), "--delta", "--force", "--rank", "4")
    equal(code, 0, err)
    opens("pack --delta", path("d.gguf"))
    code, out, err = run(
        "pack",
        plain,
        path("l.gguf"),
        "--delta",
        "--base",
        make_model(path("base.gguf"), "--arch", "qwen3", *SHAPE, "--seed", "5"),
        "--force",
        "--rank",
        "4",
    )
    equal(code, 0, err)
    code, out, err = run(
        "run",
        path("base.gguf"),
        "x",
        "--raw",
        "-n",
        "1",
        "--lora",
        path("l.gguf"),
        "--ram",
        "64M",
        "--ctx",
        "64",
        "--quiet",
    )
    equal(code, 0, ("pack --delta --base", err))
    code, out, err = run("imatrix", plain, text, "-o", path("i.gguf"), "--ctx", "64", "--ram", "64M", "--quiet")
    equal(code, 0, err)
    equal(run("quantize", plain, path("w.gguf"), "Q4_K_M", "--imatrix", path("i.gguf"))[0], 0, "quantize --imatrix")
    opens("quantize --imatrix", path("w.gguf"))
    equal(run("draft-index", plain, text, "-o", path("x.index"))[0], 0, "draft-index")
    code, out, err = run(
        "run", plain, "x", "--raw", "-n", "2", "--draft", path("x.index"), "--ram", "64M", "--ctx", "64", "--quiet"
    )
    equal(code, 0, ("draft-index", err))
    deep = make_model(path("deep.gguf"), *SHAPE, "--layers", "6")
    code, out, err = run(
        "calibrate", deep, "--text", text, "-o", path("c.gguf"), "--threshold", "0.9", "--ram", "64M", "--quiet"
    )
    equal(code, 0, err)
    code, out, err = run(
        "run",
        deep,
        "x",
        "--raw",
        "-n",
        "2",
        "--skip",
        "static",
        "--sidecar",
        path("c.gguf"),
        "--ram",
        "64M",
        "--ctx",
        "64",
        "--quiet",
    )
    equal(code, 0, ("calibrate", err))


for part in (kinds, unknown, before_pre, overrides, names, written):
    part()
print("every file was called what it is")
