#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Control characters in a file, a name or a model's text reach terminals, logs and JSON only escaped."""

import json
import os
import pty
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, check, equal, make_model  # noqa: E402
from gguf_edit import ARR, STR, Gguf  # noqa: E402

NTX = os.path.join(BIN, "ntx")
PROFILE = os.path.join(os.environ["NTX_SOURCE"], "bench", "profiles", "rtx3090-pcie3x8.json")
MARKS = "\u202e\u2066\u200f\u2028\u061c"  # the direction of text, and a line's end
EVIL = (
    b"\x1b]0;owned\x07\nntx: forged\r" + MARKS.encode() + b"\xc2\x9b31m\x9b\x7f"
)  # a title, a line, colours in three ways
tmp = tempfile.TemporaryDirectory(prefix="ntx-foreign-")
os.environ.update({"TMPDIR": tmp.name, "XDG_RUNTIME_DIR": ""})
plain = make_model(
    os.path.join(tmp.name, "m.gguf"),
    "--layers",
    "2",
    "--embd",
    "256",
    "--ff",
    "512",
    "--heads",
    "4",
    "--kv",
    "2",
    "--type",
    "Q8_0",
)


def clean(what, data, lines=None):
    """Checks that data contains no terminal control sequences."""
    text = data.decode()  # which a lone C1 byte is not
    for c in text:
        check(
            c == "\n"
            or not (
                c < " " or "\x7f" <= c < "\xa0" or c in MARKS or "\u2028" <= c <= "\u202e" or "\u2066" <= c <= "\u206f"
            ),
            what,
            ": holds",
            repr(c),
            "in",
            repr(text[:400]),
        )
    check(lines is None or text.count("\n") == lines, what, ":", text.count("\n"), "lines:", repr(text))
    check("\nntx: forged" not in text, what, ": a forged line in", repr(text))


def run(*argv, **more):
    p = subprocess.run([NTX, *argv], stdin=subprocess.DEVNULL, capture_output=True, timeout=120, **more)
    return p.returncode, p.stdout, p.stderr


def bent(name, **keys):
    g = Gguf(plain)
    for k, v in keys.items():
        g.keys[k.replace("__", ".").encode()] = (STR, v)
    return g.write(os.path.join(tmp.name.encode(), name))


def errors():
    for key in (
        "tokenizer__ggml__model",
        "tokenizer__ggml__pre",
        "general__architecture",
        "general__name",
        "llama__rope__scaling__type",
    ):
        keys = {key: EVIL}
        if key == "tokenizer__ggml__pre":
            keys["tokenizer__ggml__model"] = b"gpt2"
        code, out, err = run(
            "run", bent(b"bent.gguf", **keys), "x", "--raw", "-n", "1", "--ram", "64M", "--ctx", "64", "--quiet"
        )
        equal(code, 0 if "name" in key else 111, key)
        clean(key, err, int(code != 0))  # what the model writes goes into a pipe as it is
    odd = os.path.join(tmp.name.encode(), EVIL.replace(b"/", b"") + b".gguf")
    os.symlink(plain, odd)
    with open(odd + b".text", "wb") as f:
        f.write(b"no model")
    for what, argv in (
        ("a path that is no model", ("run", odd + b".text", b"x")),
        ("a path that is not there", ("inspect", odd + b"?")),
        ("a command", (EVIL,)),
        ("an option's value", ("run", plain, "x", b"--ram=" + EVIL)),
        ("an argument", ("status", EVIL)),
        ("a socket", ("status", "--socket", tmp.name.encode() + b"/" + EVIL[:20])),
    ):
        code, out, err = run(*argv)
        check(code in (100, 111), what, code)
        clean(what, out + err)


def inspected():
    g = Gguf(plain)
    g.keys[b"general.name"] = (STR, EVIL[:-2] + b"\x7f\xc2\x85")  # UTF-8, as JSON shows it
    g.keys[b"general.author"] = (STR, EVIL)
    path = g.write(os.path.join(tmp.name, "named.gguf"))
    g.tensors[("forged" + MARKS).encode()] = [(32,), 0, bytearray(128)]
    tensor = g.write(os.path.join(tmp.name, "tensor.gguf"))
    code, out, err = run("inspect", tensor)
    check(b"forged" in out, "a tensor's name:", code, out[-300:], err)
    clean("a tensor's name", out + err)
    for argv in (
        ("inspect", path),
        ("inspect", path, "--json"),
        ("plan", path, "--profile", PROFILE),
        ("plan", path, "--profile", PROFILE, "--json"),
    ):
        code, out, err = run(*argv)
        equal(code, 0, (argv, err))
        clean(argv[:1], out + err)
        if "--json" in argv:
            json.loads(out)
    name = json.loads(run("inspect", path, "--json")[1])["metadata"]["general.name"]
    equal(name.encode(), EVIL[:-2] + b"\x7f\xc2\x85", "the name in JSON is the one in the file")


def written(tty, *argv):
    """What a program writes to standard output, which is a terminal or a pipe."""
    if not tty:
        return run(*argv)[1]
    pid, fd = pty.fork()
    if not pid:
        os.execv(NTX, [NTX, *argv])
    seen = b""
    try:
        while data := os.read(fd, 65536):
            seen += data
    except OSError:
        pass
    equal(os.waitpid(pid, 0)[1], 0, (argv, seen))
    return seen.replace(b"\r\x1b[K", b"").replace(
        b"\r\n", b"\n"
    )  # progress that is wiped; as the terminal driver makes it


def generated():
    """A model whose every token is a control sequence: a pipe gets it unchanged, a terminal gets it escaped."""
    g = Gguf(plain)
    kind, (elem, tokens) = g.keys[b"tokenizer.ggml.tokens"]
    types = g.keys[b"tokenizer.ggml.token_type"][1][1]
    g.keys[b"tokenizer.ggml.tokens"] = (
        ARR,
        (
            STR,
            [
                b"\x1b[%dm\xc2\x9b\t\x07\xe2\x80\xae%x\r\n" % (i % 8, i) if types[i] == 1 else t
                for i, t in enumerate(tokens)
            ],
        ),
    )
    path = g.write(os.path.join(tmp.name, "talks.gguf"))
    argv = (
        "run",
        path,
        "x",
        "--raw",
        "-n",
        "12",
        "--ram",
        "64M",
        "--ctx",
        "64",
        "--quiet",
        "--ignore-eos",
        "--seed",
        "1",
    )
    raw, shown, lines = written(False, *argv), written(True, *argv), written(False, *argv, "--json")
    check(b"\x1b[" in raw and b"\xc2\x9b" in raw, "a pipe gets the text as it is:", raw)
    clean("a terminal", shown.replace(b"\t", b""))
    check(b"\xe2\x80\xae" in raw and b"\\xe2\\x80\\xae" in shown, "text that would run the other way:", shown)
    check(b"\\x1b[" in shown and b"\\xc2\\x9b\t\\x07" in shown, "a terminal shows what it does not obey:", shown)
    clean("JSON lines", lines)
    equal(
        "".join(json.loads(s).get("text", "") for s in lines.splitlines()).encode(),
        raw.rstrip(b"\n") + raw[len(raw.rstrip(b"\n")) : -1],
        "the same text in JSON",
    )
    ids = json.dumps([json.loads(s)["token"] for s in lines.splitlines() if b'"token"' in s]).encode()
    for tty in (False, True):
        with open(os.path.join(tmp.name, "ids"), "wb") as f:
            f.write(ids)
        text = written_from(tty, os.path.join(tmp.name, "ids"), "detokenize", path)
        check((b"\x1b" in text) == (not tty), "detokenize to a", "terminal" if tty else "pipe", text)


def written_from(tty, path, *argv):
    if not tty:
        return subprocess.run([NTX, *argv], stdin=open(path), capture_output=True, timeout=60).stdout
    pid, fd = pty.fork()
    if not pid:
        os.dup2(os.open(path, os.O_RDONLY), 0)
        os.execv(NTX, [NTX, *argv])
    seen = b""
    try:
        while data := os.read(fd, 65536):
            seen += data
    except OSError:
        pass
    os.waitpid(pid, 0)
    return seen


errors()
inspected()
generated()
print("no control byte of a file, a name or a model reached anybody")
