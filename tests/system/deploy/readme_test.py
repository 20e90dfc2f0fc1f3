#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Commands and options that README.md and the other pages name exist.

The commands at the beginning of README.md work as printed there, except quickstart, which would build all once more.
tests/style/docs_test.py checks the files that pages name.
"""

import glob
import os
import re
import subprocess
import sys
import tempfile

SOURCE, BIN = os.environ["NTX_SOURCE"], os.environ["NTX_BIN"]
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "deploy/README.md", "predictor/README.md"] + sorted(
    os.path.relpath(p, SOURCE)
    for p in glob.glob(os.path.join(SOURCE, "docs/*.md")) + glob.glob(os.path.join(SOURCE, "docs/usage/*.md"))
)
OTHERS = (  # options behind these are not ours
    "bench/|build/tests/|tests/golden/|ntx-mkmodel|mpirun|srun|systemctl|journalctl|cmake|ctest|apt|curl|docker|pip|"
    "tests/run|swapon|llama-|mount|fio|sysctl|udevadm|--prefix /usr|setcap|usermod|systemd-|deploy/release|"
    "deploy/uninstall|podman|seccomp|--no-cuda|--user"
)
failures = []


def check(ok, *what):
    if not ok:
        failures.append(" ".join(str(w) for w in what))


def said(*argv):
    r = subprocess.run(
        [os.path.join(BIN, argv[0]), *argv[1:]], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL
    )
    return r.returncode, r.stdout, r.stderr


def options(*argv):
    return set(re.findall(r"--[a-z][a-z0-9-]*", said(*argv, "--help-all" if argv[0] == "ntx" else "--help")[1]))


def page(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as f:
        return f.read()


def names():
    commands = re.findall(r"^  ntx ([a-z][a-z-]*)", said("ntx", "--help")[1], re.M)
    check(len(commands) > 20, "commands:", commands)
    of = {c: options("ntx", c) for c in commands}
    for other in ("ntx-top", "ntx-metrics", "ntx-gateway", "ntx-computed", "ntx-iod", "ntx-predictor"):
        of[other] = options(other)
    known = set().union(*of.values(), {"--help", "--help-all", "--version"})
    for name in PAGES:
        for n, line in enumerate(page(name).splitlines(), 1):
            where = "%s:%d:" % (name, n)
            for c in re.findall(r"(?:`|^    |; )ntx ([a-z][a-z-]*)\b", line):
                check(c in commands + ["help"], where, "no command", c)
            if re.search(OTHERS, line):
                continue
            for o in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", line):
                check(o in known, where, "no option", o)
            for c, rest in re.findall(r"(?:`|^    |; )ntx ([a-z][a-z-]*)\b([^`;|]*)", line):
                for o in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", rest):
                    check(c not in of or o in of[c], where, "ntx", c, "has no", o)


def first_commands(tmp):
    block = re.search(r"^## Quick start\n\n((?:    .*\n)+)", page("README.md"), re.M)
    lines = [re.split(r"   +", line.strip())[0] for line in block[1].splitlines()]
    check(
        [line.split()[:2] for line in lines]
        == [["deploy/quickstart"]] + [["build/bin/ntx", c] for c in ("doctor", "plan", "run")],
        lines,
    )
    check(os.access(os.path.join(SOURCE, "deploy/quickstart"), os.X_OK), "deploy/quickstart is no program")
    env = dict(os.environ, XDG_CACHE_HOME=tmp, TMPDIR=tmp)
    for line in lines[1:]:
        line = line.replace("build/bin", BIN).replace("MODEL.gguf", os.path.join(SOURCE, "models/demo.gguf")) + (
            " --seconds 3 --dir " + tmp if "doctor" in line else ""
        )
        r = subprocess.run(
            ["bash", "-c", line], env=env, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL
        )
        check(r.returncode == 0 and len(r.stdout) > 20, line, r)


names()
with tempfile.TemporaryDirectory() as tmp:
    first_commands(tmp)
for f in failures:
    print("FAILED:", f)
print("options, commands and files of", len(PAGES), "pages, and the first commands of README.md")
sys.exit(bool(failures))
