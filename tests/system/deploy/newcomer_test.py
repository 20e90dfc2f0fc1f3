#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A newcomer's walk: the commands of README.md, in their order, in a bare Debian (debootstrap minbase) with a copy of
this tree. They are taken from the blocks of README.md; ROWS says what each must do. A command without a row fails, and
so does a row without a command. Builds ntx there, with packages from the network: part of tests/run --long. `pull` gets
a model from a hub on loopback.

NTX_NEWCOMER_ROOT: a root made by debootstrap before; what is built in it is not built again."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

SOURCE = os.environ["NTX_SOURCE"]
sys.path.insert(0, os.path.join(SOURCE, "tests", "unit", "pull"))
from hub import Site  # noqa: E402

MODEL, PULLED = "models/demo.gguf", "hf:tiny/Demo-GGUF:Q8_0"
LIMIT, BUILD_LIMIT = 600, 3 * 3600


def skip(why):
    print("skipped:", why)
    sys.exit(77)


def fail(*what):
    print("FAILED:", *what)
    sys.exit(1)


def commands(text):
    """(heading, command) of each indented line of README.md whose block has commands; a comment begins behind three
    blanks; `a; b` are two commands."""
    heading, out = "", []
    for line in text.splitlines():
        if line.startswith("## "):
            heading = line[3:]
        if not line.startswith("    ") or heading in ("How it works", "Where things are"):
            continue
        for command in re.split(r"; ", re.split(r" {3,}", line.strip())[0]):
            out.append((heading, command))
    return out


class Bare:
    """The root, with processes of its own, of which all end with it."""

    def __init__(self, root, env):
        self.root = root
        self.env = {
            "PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "LC_ALL": "C.UTF-8",
            "TERM": "xterm",
            "NTX_HUB": env,
        }
        mounts = "mount -t proc proc {0}/proc && mount -t tmpfs tmpfs {0}/run && mount -t tmpfs tmpfs {0}/tmp && "
        mounts += "mount --rbind /dev {0}/dev && echo ready && exec sleep infinity"
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c"]
            + [mounts.format(shlex.quote(root))],
            stdout=subprocess.PIPE,
            text=True,
        )
        if self.holder.stdout.readline() != "ready\n":
            skip("no namespaces here")
        with open("/proc/%d/task/%d/children" % (self.holder.pid, self.holder.pid)) as f:
            self.init = f.read().split()[0]

    def start(self, command, **more):
        # `some-program` of README stands for any
        command = "some-program() { echo 'a list of words'; }; cd /ntx || exit; " + command
        return subprocess.Popen(
            ["nsenter", "-t", self.init, "-m", "-p", "chroot", self.root, "env", "-i"]
            + ["%s=%s" % v for v in self.env.items()]
            + ["bash", "-c", command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            **more,
        )

    def run(self, command, typed=None, limit=LIMIT):
        if typed is not None:  # at a terminal
            command = "script -qec %s /dev/null" % shlex.quote(command)
        p = self.start(command, stdin=subprocess.PIPE if typed is not None else subprocess.DEVNULL)
        if typed is not None:
            for text in typed:
                time.sleep(2)  # a person types; what is typed early is read later
                p.stdin.write(text.encode())
                p.stdin.flush()
        try:
            out = p.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            p.kill()
            fail(command, "has not ended after", limit, "s")
        return p.returncode, out.decode(errors="replace")

    def end(self):
        self.holder.kill()
        self.holder.wait()


def get(url, body=None):
    request = urllib.request.Request(url, body and json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as r:
        return r.read().decode()


def http_answers():
    """README: the APIs of OpenAI, Anthropic and Ollama, and a chat page."""
    url, ask = "http://127.0.0.1:8080", [{"role": "user", "content": "Once"}]
    texts = (
        get(url + "/v1/chat/completions", {"messages": ask, "max_tokens": 4}),
        get(url + "/v1/messages", {"model": "m", "messages": ask, "max_tokens": 4}),
        get(url + "/api/chat", {"model": "m", "messages": ask, "stream": False, "options": {"num_predict": 4}}),
        get(url + "/"),
    )
    for text, word in zip(texts, ("choices", "content", "message", "<html")):
        if word not in text:
            fail("ntx serve:", word, "is not in", text[:500])


def up(bare):
    return bare.run("ntx status")[0] == 0


def serves(bare):
    try:
        return bool(get("http://127.0.0.1:8080/health"))
    except OSError:
        return False


class Row:
    """command: a pattern of the whole command. words: each is in its output. typed: at a terminal, these lines.
    ready: it stays, and is ready then. then: called afterwards. ends: what stayed has ended after it. elsewhere: it is
    not run here, and why."""

    def __init__(self, command, words=(), typed=None, ready=None, then=None, ends=None, limit=LIMIT, elsewhere=None):
        self.command, self.words, self.typed, self.ready, self.then = command, words, typed, ready, then
        self.ends, self.limit, self.elsewhere = ends, limit, elsewhere
        self.met = False


DEMO_WORDS = 12  # of an answer of the demo model, at least
ROWS = [
    Row("deploy/quickstart", ["== done", "ntx run"], limit=BUILD_LIMIT),
    Row("build/bin/ntx doctor", ["drive"]),
    Row("build/bin/ntx plan MODEL.gguf", ["tok"]),
    Row('build/bin/ntx run MODEL.gguf ".*"', DEMO_WORDS),
    Row("sudo cmake --install build", ["/usr/local/bin/ntx"], limit=BUILD_LIMIT),  # builds what quickstart left out
    Row('ntx run MODEL ".*" --ram 3G', DEMO_WORDS),
    Row("ntx run MODEL", ["/help"], typed=["/help\n", "Once upon a time\n", "\x04"]),
    Row(r'some-program \| ntx run MODEL ".*" -', DEMO_WORDS),
    Row("ntx search WORD", ["tiny/Demo-GGUF", "ntx runs it"]),
    Row(r"ntx pull NAME\[:TYPE\]", ["Demo"]),
    Row("ntx list", ["tiny/Demo-GGUF"]),
    Row("ntx rm NAME"),
    Row("ntx up MODEL --sessions 4", ready=up),
    Row('ntx generate ".*"', DEMO_WORDS),
    Row("ntx chat", [], typed=["Once upon a time\n", "\x04"]),
    Row("ntx status", ["ready"]),
    Row("ntx stop", ends="ntx up"),
    Row(r"ntx serve MODEL\.\.\.", ready=serves, then=http_answers),
    Row("ntx-top", ["drive"], typed=["", "q"]),
    Row("ntx-metrics", ["ntx_up 1"], ends="ntx serve"),
    Row("ntx plan MODEL --ram 3G", ["tok"]),
    Row("ntx (quantize|calibrate|pack)", ["Usage"]),
    Row("ntx COMMAND --help-all", ["Usage"]),
    Row(r"sudo systemd-sysusers && sudo systemd-tmpfiles --create ntx\.conf"),
    Row(r"sudo systemctl daemon-reload && sudo systemctl enable --now ntx\.target"),
    Row("cmake --preset default.*", elsewhere="tests/run builds so"),
    Row("tests/run --quick", elsewhere="this test is a part of tests/run"),
    Row("build/bin/ntx-mkmodel --help", elsewhere="the preset builds it, tests/run uses it"),
]


def spelt(command):
    """The placeholders of README are filled in; a command that is only named is asked for its help. No systemd runs in
    the root, so the service is enabled and not started (deploy-systemd starts it)."""
    command = command.replace("enable --now", "enable")
    command = re.sub(r"NAME\[:TYPE\]", PULLED, command)
    command = re.sub(r"\bWORD\b", "demo", command)
    command = re.sub(r"\bNAME\b", "tiny/Demo-GGUF:Q8_0", command)
    command = re.sub(r"\bCOMMAND\b", "run", command)
    command = re.sub(r"\bMODEL(\.gguf|\.\.\.)?(?=$| )", MODEL, command)
    return re.sub(r"^(ntx (quantize|calibrate|pack))$", r"\1 --help", command)


def wait_ready(bare, row, command, process):
    end = time.monotonic() + row.limit
    while not row.ready(bare):
        if process.poll() is not None:
            fail(command, "ended:", process.stdout.read().decode())
        if time.monotonic() > end:
            fail(command, "is not ready after", row.limit, "s")
        time.sleep(0.2)


def check_said(row, command, code, said):
    if code:
        fail(command, "ended with", code, said[-3000:])
    words = row.words if isinstance(row.words, list) else []
    for word in words:
        if word not in said:
            fail(command, "does not say", repr(word), ":", said[-3000:])
    if row.words == DEMO_WORDS and len(said.split()) < DEMO_WORDS:
        fail(command, "says little:", said)


def end_of(bare, stays, which):
    command, process = stays.pop(which)
    if which == "ntx serve":  # README: in a terminal, so Ctrl-C ends it
        bare.run("for p in /proc/[0-9]*; do ! grep -qx ntx $p/comm || kill -INT ${p#/proc/}; done")
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        fail(command, "has not ended")


def walk(bare, text):
    stays = {}
    todo = commands(text)
    for heading, command in todo:
        row = next((r for r in ROWS if re.fullmatch(r.command, command)), None)
        if not row:
            fail("README.md, %s: a command that newcomer_test.py does not know: %s" % (heading, command))
        row.met = True
        if row.elsewhere:
            print("not here (%s): %s" % (row.elsewhere, command))
            continue
        begin = time.monotonic()
        if row.ready:
            process = bare.start(spelt(command), stdin=subprocess.DEVNULL)
            stays[" ".join(command.split()[:2])] = command, process
            wait_ready(bare, row, command, process)
        else:
            check_said(row, command, *bare.run(spelt(command), row.typed, row.limit))
        if row.then:
            row.then()
        if row.ends:
            end_of(bare, stays, row.ends)
        print("%6.1f s  %s" % (time.monotonic() - begin, command), flush=True)
    for row in ROWS:
        if not row.met:
            fail("README.md no longer has a command for the row", row.command)
    return len(todo)


def installed(root):
    """What README says of the service: its units are enabled, its configuration and users are there."""
    if not os.path.islink(os.path.join(root, "etc/systemd/system/multi-user.target.wants/ntx.target")):
        fail("ntx.target is not enabled")
    if not os.path.exists(os.path.join(root, "etc/ntx/ntx.conf")):
        fail("no /etc/ntx/ntx.conf")
    with open(os.path.join(root, "etc/group")) as f:
        if not re.search("^ntx:", f.read(), re.M):
            fail("no group ntx")


def make_root(tmp):
    root = os.environ.get("NTX_NEWCOMER_ROOT")
    if not root:
        root = os.path.join(tmp, "root")
        with open("/etc/os-release") as f:
            suite = re.search('^VERSION_CODENAME="?([a-z]+)', f.read(), re.M)
        r = subprocess.run(
            ["debootstrap", "--variant=minbase", "--include=systemd,sudo", suite[1] if suite else "", root],
            capture_output=True,
            text=True,
        )
        if r.returncode:
            skip("debootstrap fails here: " + (r.stdout + r.stderr)[-200:])
    shutil.copy("/etc/resolv.conf", os.path.join(root, "etc/resolv.conf"))
    with open(os.path.join(root, "etc/hosts"), "w") as f:  # sudo looks its own name up
        f.write("127.0.0.1 localhost %s\n" % os.uname().nodename)
    there = os.path.join(root, "ntx")
    os.makedirs(there, exist_ok=True)
    subprocess.run(
        "git ls-files -z | tar -c --null --ignore-failed-read -T - | tar -x --no-same-owner -C %s" % shlex.quote(there),
        shell=True,
        check=True,
        cwd=SOURCE,
    )
    return root


def main():
    if not os.environ.get("NTX_LONG"):
        skip("part of tests/run --long (NTX_LONG is set there)")
    if os.geteuid() or not shutil.which("debootstrap"):
        skip("needs root and debootstrap")
    with tempfile.TemporaryDirectory() as tmp, Site(tmp) as site:
        root = make_root(tmp)
        with open(os.path.join(SOURCE, "models/demo.gguf"), "rb") as f:
            site.files["Demo-Q8_0.gguf"] = f.read()
        files = [{"rfilename": n, "size": len(b)} for n, b in site.files.items()]
        facts = {"gguf": {"architecture": "llama", "total": 7480000}, "gated": False, "siblings": files}
        site.repos = {"tiny/Demo-GGUF": {"downloads": 7, "info": facts}}
        bare = Bare(root, site.url)
        try:
            with open(os.path.join(root, "ntx/README.md"), encoding="utf-8") as f:
                n = walk(bare, f.read())
            installed(root)
        finally:
            bare.end()
        print("%d commands of README.md, from a bare root on" % n)


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
main()
