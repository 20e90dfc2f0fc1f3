#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Progress on a terminal: while a model loads, while the prompt is read, and while a pass takes over a second.

It is erased before text appears, also in a line that text has begun; none is shown where nothing takes long or where
output is no terminal. And what else a run reports.
"""

import fcntl
import json
import os
import pty
import re
import resource
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, Daemons, Deadline, check, equal, make_model, wait_for  # noqa: E402

try:
    import pyte
except ImportError:
    print("skipped: python3-pyte, which plays the terminal, is not installed")
    sys.exit(77)

NTX = os.path.join(BIN, "ntx")
tmp = tempfile.TemporaryDirectory(prefix="ntx-progress-")
os.environ.update({"TMPDIR": tmp.name, "XDG_RUNTIME_DIR": "", "TERM": "xterm", "LC_ALL": "C.UTF-8"})
model = make_model(
    os.path.join(tmp.name, "m.gguf"),
    "--layers",
    "6",
    "--embd",
    "512",
    "--ff",
    "1536",
    "--heads",
    "8",
    "--kv",
    "2",
    "--type",
    "Q8_0",
)
RATE = 8e6
RUN = (
    "run",
    model,
    "Once upon a time",
    "--raw",
    "--ram",
    "10M",
    "--ctx",
    "64",
    "--temp",
    "0",
    "--ignore-eos",
    "--seed",
    "1",
)
SLOW = ("--link", "nvme=%d" % RATE)
PASS = re.compile(r"layer (\d+) of 7, ([\d.]+) of ([\d.]+) MiB(?: at ([\d.]+) MB/s)?(?:, (\d+) s left)?$")


def shown(size, *argv, keep=False):
    """Runs ntx in a terminal of that size. Returns all its screens, each a list of lines, and the exit status."""
    screen = pyte.Screen(*size)
    stream = pyte.ByteStream(screen)
    pictures, raw = [], b""
    pid, fd = pty.fork()
    if not pid:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        os.execv(NTX, [NTX, *argv])
    end = Deadline(200)
    while not end.over():
        if not select.select([fd], [], [], 0.5)[0]:
            continue
        try:
            data = os.read(fd, 65536)
        except OSError:
            break
        raw += data
        stream.feed(data)
        lines = [l.rstrip() for l in screen.display]
        if not pictures or pictures[-1] != lines:
            pictures.append(lines)
    return pictures, raw, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def plain(*argv):
    p = subprocess.run([NTX, *argv], capture_output=True, stdin=subprocess.DEVNULL, timeout=200)
    equal(p.returncode, 0, p.stderr)
    return p.stdout.decode(), p.stderr.decode()


def of_passes(pictures):
    """(text before it, match, lines) of each screen with a line about a pass."""
    return [(m.string[: m.start()], m, p) for p in pictures for l in p if (m := PASS.search(l))]


def throttled(size, n):
    """The progress of prompt and generation; the text is the same without a terminal."""
    text, said = plain(*RUN, "-n", str(n))
    check("\x1b" not in said and "layer" not in said, "standard error is no terminal:", said)
    text = text.rstrip("\n")
    check(text.isprintable(), "a text of one line is wanted", repr(text))
    pictures, raw, code = shown(size, *RUN, *SLOW, "-n", str(n))
    equal(code, 0, "a throttled run")
    seen = of_passes(pictures)
    prompt = [m for before, m, _ in seen if re.fullmatch(r"prompt 0 of \d+, ", before)]
    writing = [(m, p) for before, m, p in seen if not before]
    check(len(prompt) >= 2 and len(writing) >= 2, "too few signs of life:", pictures)
    total = float(prompt[0][3])
    for m in prompt + [m for m, _ in writing]:
        check(float(m[3]) == total and 0 <= float(m[2]) <= total and 1 <= int(m[1]) <= 7, "progress", m[0])
        check(not m[4] or 0.5 * RATE / 1e6 < float(m[4]) < 1.5 * RATE / 1e6, "rate", m[0])
    for a, b in zip(prompt, prompt[1:]):
        check(float(a[2]) <= float(b[2]) and int(a[1]) <= int(b[1]), "it goes backwards:", a[0], b[0])
    left = [(int(m[5]), (total - float(m[2])) * (1 << 20) / RATE) for m in prompt if m[5] and float(m[2]) > 0.2 * total]
    check(left and all(abs(l - want) < 2 + want for l, want in left), "time left, and what it would be by bytes:", left)
    # Each screen shows the beginning of the text unchanged, whatever is below it.
    for m, lines in writing:
        shown_text = "".join(lines[: lines.index(m.string)])
        tail = shown_text[-(size[0] // 2) :].strip()
        check(tail in text, "text above the progress:", lines)
    last = pictures[-1]
    check(
        not any("layer" in l or "prompt 0" in l or "loading" in l or "planning" in l for l in last),
        "left on the screen:",
        last,
    )
    rows = "".join(l.ljust(size[0]) for l in last)
    check(text[-size[0] :].strip() in rows, "the text at the end:", last, text)
    gaps = raw.count(b"layer")
    check(gaps <= 4 * 1.5 * (len(text) + 60), "too many signs of life", gaps)


def loading():
    pictures, _, code = shown((79, 24), *RUN[:4], "--ram", "64M", "--ctx", "64", "--temp", "0", *SLOW, "-n", "1")
    equal(code, 0, "loading")
    lines = [l for p in pictures for l in p if l.startswith("loading")]
    m = re.fullmatch(r"loading ([\d.]+) of ([\d.]+) MiB at ([\d.]+) MB/s, (\d+) s left", lines[len(lines) // 2])
    check(m, "loading:", lines)
    check(0.5 * RATE < float(m[3]) * 1e6 < 2 * RATE, "rate of loading", m[0])
    want = (float(m[2]) - float(m[1])) * (1 << 20) / (float(m[3]) * 1e6)
    check(abs(int(m[4]) - want) <= 1, "time left", m[0], want)
    said = "\n".join(pictures[-1])
    check("token" not in said and "loading" not in said, "more than the text is left:", said)


def nobody_waits():
    """No progress for passes that end soon, with --quiet, and with JSON."""
    for options in ((), ("--quiet", *SLOW)):
        _, raw, code = shown((80, 24), *RUN, "-n", "2", *options)
        check(code == 0 and b"layer" not in raw, options, raw)
    _, raw, code = shown((80, 24), *RUN, "-n", "2", "--json", *SLOW)
    check(code == 0 and b"layer" in raw, "--json on a terminal shows no progress", raw)
    rest = re.sub(rb"\r\x1b\[K[^\r\n{]*", b"", raw)
    lines = [json.loads(l) for l in rest.decode().splitlines() if l.startswith("{")]
    equal([sorted(l) for l in lines], [["text", "token"]] * 2 + [["stats"]], "lines of --json")


def of_a_service():
    with Daemons() as d:
        c = d.client()
        c.load(model, ram_bytes=10 << 20, ctx=64, link_nvme_bps=RATE)
        request = c.generate("Once upon a time", raw=1, ignore_eos=True, max_tokens=2, temp=0.0)
        begin = time.monotonic()
        a = c.answer(request)
        took = time.monotonic() - begin
        signs = [p for p in a.progress if p["phase"] == "pass"]
        storage = json.loads(c.status())["bytes_storage"]
        check(3 <= len(signs) <= 4 * took + 2, "signs in %.1f s:" % took, signs)
        for p in signs:
            check(
                p["layers"] == 7 and p["total"] == storage and 1 <= p["layer"] <= 7 and p.get("done", 0) <= storage,
                "pass",
                p,
                storage,
            )
        check(
            signs[0]["prompt_total"] > 1 and "prompt_total" not in signs[-1], "of the prompt, and of the writing", signs
        )
        pictures, _, code = shown(
            (80, 24),
            "generate",
            "Once upon a time",
            "--raw",
            "--temp",
            "0",
            "-n",
            "2",
            "--ignore-eos",
            "--socket",
            d.socket(),
        )
        check(code == 0 and of_passes(pictures), "generate", pictures)
        equal(json.loads(c.status())["sessions"], 0, "sessions")
        c.close()


def more_words():
    """A region that is not locked is no message for users who may not lock memory."""

    def unprivileged():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0))

    with open(NTX, "rb") as f:
        locks = b"__asan_init" not in f.read()  # ASan makes nothing of mlock, and says it went well
    drop = ["setpriv", "--bounding-set", "-ipc_lock", "--inh-caps", "-ipc_lock"] if os.geteuid() == 0 else []
    for more, want in (((), False), (("-v",), True)):
        p = subprocess.run(
            [*drop, NTX, *RUN, "-n", "1", *more],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            preexec_fn=unprivileged,
            timeout=60,
        )
        equal(
            (p.returncode, "not locked in memory" in p.stderr), (0, want and locks), "options %s: %s" % (more, p.stderr)
        )
        equal("attached as instance" in p.stderr, want, "what the daemons log: " + p.stderr)


throttled((79, 24), 2)
throttled((79, 4), 3)  # the lowest line: all scrolls
loading()
nobody_waits()
of_a_service()
more_words()
print("signs of life where somebody waits")
