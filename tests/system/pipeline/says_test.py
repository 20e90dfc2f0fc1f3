#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages about what a run cannot do: an empty prompt, a source that is refused.

And, once, that a model without a chat template just continues the text.
"""

import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, check, equal, make_model  # noqa: E402

NTX = os.path.join(BIN, "ntx")
NO_URING = os.path.join(os.environ["NTX_SOURCE"], "tests", "system", "pipeline", "no_uring.py")
NOTE = "has no chat template: the text is continued"
tmp = tempfile.TemporaryDirectory(prefix="ntx-says-")
os.environ.update({"TMPDIR": tmp.name, "XDG_RUNTIME_DIR": ""})
SMALL = ("--layers", "2", "--embd", "64", "--ff", "128", "--heads", "2", "--kv", "1", "--seed", "5")
plain = make_model(os.path.join(tmp.name, "m.gguf"), *SMALL)
form = make_model(os.path.join(tmp.name, "f.gguf"), *SMALL, "--chat-template", "chatml")


def run(*argv, before=(), stdin=b""):
    p = subprocess.run(
        [*before, NTX, "run", *argv, "-n", "2", "--temp", "0", "--ram", "64M", "--ctx", "64"],
        input=stdin,
        capture_output=True,
        timeout=120,
    )
    return p.returncode, p.stdout, p.stderr.decode()


def empty():
    nothing = os.path.join(tmp.name, "nothing")
    open(nothing, "w").close()
    for what, argv, words in (
        ("an argument", ("",), "give a text"),
        ("standard input", (), "nothing came from standard input"),
        ("a file", ("-f", nothing), "the file has no text"),
        ("a raw one", ("", "--raw"), "give a text"),
    ):
        code, out, err = run(plain, *argv)
        equal((code, out, err.count("\n")), (111, b"", 1), "%s: %s" % (what, err))
        check("the prompt is empty" in err and words in err, what, err)
    equal(run(plain, " ")[0], 0, "a blank is a text")


def without_template():
    for what, argv, n in (
        ("as it is", (plain, "Hi"), 1),
        ("raw", (plain, "Hi", "--raw"), 0),
        ("quiet", (plain, "Hi", "--quiet"), 0),
        ("a form by name", (plain, "Hi", "--chat-template", "chatml"), 0),
        ("its own form", (form, "Hi"), 0),
    ):
        code, out, err = run(*argv)
        equal((code, err.count(NOTE)), (0, n), "%s: %s" % (what, err))


def refused():
    for what, argv in (("memory", ()), ("the drive", ("--ram", "5M"))):
        code, out, err = run(plain, "Hi", "--raw", "--source", "uring", *argv, before=(sys.executable, NO_URING))
        if code == 77:
            print("skipped in part: no filter of system calls can be set")
            return
        equal(
            (code, err.strip().splitlines()[-1]),
            (
                111,
                (
                    "ntx: io_uring is refused here: Operation not permitted; --source auto or --source pread reads"
                    " without it"
                ),
            ),
            what,
        )
    equal(run(plain, "Hi", "--raw", before=(sys.executable, NO_URING))[0], 0, "auto goes on without")


empty()
without_template()
for _ in range(3):  # whoever fails first says it
    refused()
