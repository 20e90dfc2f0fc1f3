#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""ntx-top in a pseudo-terminal.

Positions on 80 x 24, after a resize, in ASCII, without colour; --once and --json; skipped layers.
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, Daemons, Deadline, check, equal, fail, make_model, wait_for  # noqa: E402

try:
    import pyte
except ImportError:
    print("skipped: python3-pyte, which plays the terminal, is not installed")
    sys.exit(77)

RATE = 40e6
COLOUR = rb"\x1b\[([0-9]+;)*3[1-7](;[0-9]+)*m"
TOP = os.path.join(BIN, "ntx-top")


class Terminal:
    """ntx-top's screen, as a terminal shows it."""

    def __init__(self, directory, *options, size=(80, 24), **env):
        self.screen = pyte.Screen(*size)
        self.stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.environ.update({"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **env})
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
            os.execv(TOP, [TOP, "--runtime", directory, "--interval", "0.1", *options])

    def read(self):
        while select.select([self.fd], [], [], 0.02)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return
            self.raw += data
            self.stream.feed(data)

    def until(self, condition, what, seconds=20):
        end = Deadline(5 * seconds)
        while True:
            self.read()
            lines = self.screen.display
            value = condition(lines)
            if value:
                return value
            if end.over():
                fail("%s: not on the screen:\n%s" % (what, "\n".join(lines)))

    def key(self, k):
        os.write(self.fd, k.encode())

    def resize(self, w, h):
        self.screen.resize(h, w)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", h, w, 0, 0))
        os.kill(self.pid, signal.SIGWINCH)

    def end(self):
        self.key("q")
        end = Deadline(50)
        while not end.over():
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                os.close(self.fd)
                equal(os.waitstatus_to_exitcode(status), 0, "exit code")
                return
        fail("q does not end it")


def pipeline(lines):
    """All of the screen's content for a running model."""
    row = next((x for x in lines if " writes " in x), "")
    got = re.match(r" +(\d+)    writes +(\d+) +(\d+) +(\d+) +([\d.]+) s +([\d.]+) ", row)
    return (
        got
        if got and float(got.group(6)) > 0 and re.search(r"[\d.]+ GB/s", lines[1]) and "0.04 (set)" in lines[3]
        else None
    )


def whole(lines, h):
    check(lines[0].startswith(" ntx-top  random (llama, "), "title:", lines[0])
    for word in ("drive", "ring", "compute"):
        check("─ %s ─" % word in lines[1], "pipeline:", lines[1])
    check("━" in lines[2] and "▶" in lines[2], "arrows:", lines[2])
    check("RAM arena" in lines[5] and "limit: the drive" in lines[7], "arena:", lines[5], lines[7])
    layer_map = lines[10][11:].rstrip()
    equal(len(layer_map), 7, "columns of the layers' map (6 and the output)")
    check(set(layer_map) <= set("·░▒▓█") and layer_map != "·" * 7, "layers:", lines[10])
    for y, word in (
        (13, " drive "),
        (14, " tok/s "),
        (15, " waiting "),
        (16, " predictor "),
        (17, " memory "),
        (19, " session "),
    ):
        check(lines[y].startswith(word), "row %d lacks %s: %s" % (y, word, lines[y]))
    check(set(lines[13][11:-13].strip()) & set("▁▂▃▄▅▆▇█"), "history:", lines[13])
    check(
        re.search(r"computed [\d.]+ [KMG]iB  iod [\d.]+ [KMG]iB  predictor [\d.]+ [KMG]iB  KV \d+/\d+", lines[17]),
        "memory:",
        lines[17],
    )
    check(lines[h - 1].startswith(" q quit  h help"), "keys:", lines[h - 1])


def live(d):
    t = Terminal(d.dir)
    t.until(pipeline, "the pipeline at work")
    t.until(lambda lines: "limit: the drive" in lines[7], "the limit")
    whole(t.screen.display, 24)
    check(re.search(COLOUR, t.raw), "there are no colours")
    t.resize(120, 40)
    t.until(
        lambda lines: lines[39].startswith(" q quit") and pipeline(lines) and "limit: the drive" in lines[7],
        "the picture on 120 x 40",
    )
    whole(t.screen.display, 40)
    check(t.screen.display[1].index("compute") > 80, "longer arrows on a wider terminal")
    t.resize(80, 24)
    t.until(lambda lines: lines[23].startswith(" q quit"), "80 x 24 again")
    t.key("h")
    t.until(
        lambda lines: (
            "the picture explained" in lines[0]
            and any("early: not read; late: the read had begun" in x for x in lines)
            and all(len(x.rstrip()) < 80 for x in lines)
        ),
        "help",
    )
    t.key("x")
    t.until(lambda lines: lines[23].startswith(" q quit"), "back from the help")
    t.key("p")
    t.until(lambda lines: "PAUSED" in lines[23], "pause")
    t.key("p")
    t.until(lambda lines: "PAUSED" not in lines[23], "going on")
    t.key("a")
    t.until(lambda lines: "".join(lines).isascii() and "=" in lines[2] and "+- drive -" in lines[1], "ASCII")
    t.resize(60, 24)
    t.until(
        lambda lines: "++- ring --------++- compute -----+" in lines[1],
        "the boxes side by side, and no rates over them",
    )
    t.resize(59, 24)
    t.until(lambda lines: lines[0].startswith("ntx-top needs 60 x 8"), "a terminal too small")
    t.end()


def plain(d):
    t = Terminal(d.dir, "--no-color", LC_ALL="C")
    t.until(lambda lines: "+- drive -" in lines[1] and " writes " in "".join(lines), "ASCII by the locale")
    check(t.raw.isascii(), "bytes beyond ASCII in the C locale")
    check(not re.search(COLOUR, t.raw), "colours in spite of --no-color")
    t.end()


def scripts(d):
    run = lambda *o: subprocess.run(
        [TOP, "--runtime", d.dir, "--interval", "1", *o],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "80"},
    )
    limited = lambda *o: wait_for(
        lambda: (p := run(*o)).returncode or "the drive" in p.stdout and p, 20, "a look at which the drive limits"
    )
    once = limited("--once")
    equal((once.returncode, once.stderr), (0, ""), "--once")
    lines = [x.ljust(80) for x in once.stdout.splitlines()]
    equal((len(lines), max(map(len, lines))), (23, 80), "size of --once")
    whole(lines + [" q quit  h help"], 24)
    j = json.loads(limited("--json").stdout)
    equal(
        (j["model"], j["limit"], len(j["layers"]), j["emulated"], j["drive_ceiling_bps"]),
        ("random", "the drive", 7, True, RATE),
        "--json",
    )
    check(0.2 * RATE < j["drive_bps"] < 1.5 * RATE, "drive_bps", j["drive_bps"])
    for l in j["layers"]:
        check(abs(l["device"] + l["host"] + l["storage"] - 1) < 1e-9, "shares of a layer", l)
    weights = j["counters"]["comp_bytes_host"] + j["counters"]["comp_bytes_storage"]
    equal(weights, j["counters"]["comp_bytes_model"], "bytes by placement")
    (s,) = j["sessions"]
    check(
        s["state"] == "writing" and s["generated_tokens"] > 1 and s["ttft_s"] > 0 and s["decode_tok_s"] > 0,
        "session",
        s,
    )
    waits(j, once.stdout)
    gone = subprocess.run([TOP, "--runtime", "/nonexistent", "--once"], capture_output=True, text=True)
    equal(gone.returncode, 111, "no daemons")
    check("/nonexistent/counters" in gone.stderr and "ntx up" in gone.stderr, "no daemons:", gone.stderr)
    said = subprocess.run(
        [TOP, "--runtime", d.dir], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
    )
    check(
        said.returncode == 111 and "no terminal" in said.stderr and "--once" in said.stderr,
        "without a terminal:",
        said.returncode,
        said.stderr,
    )
    for how in ("--once", "--json"):
        with open("/dev/full", "w") as full:
            said = subprocess.run(
                [TOP, "--runtime", d.dir, "--interval", "0.1", how], stdout=full, stderr=subprocess.PIPE, text=True
            )
        check(
            said.returncode == 111 and "standard output: No space" in said.stderr,
            "on a full disk:",
            said.returncode,
            said.stderr,
        )


def waits(j, screen):
    """Histograms of the times that users notice, and their quantiles on the screen."""
    for name in ("ttft", "inter_token"):
        h = j[name]
        equal(sum(n for _, n in h["buckets"]), h["count"], name)
        bounds = [b for b, _ in h["buckets"]]
        check(bounds[-1] is None and bounds[:-1] == sorted(bounds[:-1]), "bounds of", name, bounds)
        check(0 < h["p50"] <= h["p90"] <= h["p99"], "quantiles of", name, h)
        below = 0
        for bound, n in h["buckets"]:
            if bound and bound < h["p50"]:
                below += n
        check(below <= h["count"] / 2, "the median of", name, h)
    tokens = j["counters"]["comp_tokens"]
    check(
        0 <= tokens - j["ttft"]["count"] - j["inter_token"]["count"] <= 1,
        "tokens:",
        tokens,
        j["ttft"]["count"],
        j["inter_token"]["count"],
    )
    shown = re.search(r"p50, p99: TTFT ([\d.]+), ([\d.]+) s; gaps of tokens ([\d.]+), ([\d.]+) s", screen)
    check(shown and float(shown[1]) <= float(shown[2]) and 0 < float(shown[3]) <= float(shown[4]), "waits", screen)


def terminals(d):
    """A terminal that cannot show ntx-top gets a hint; if it goes away, ntx-top ends, even if SIGHUP is ignored."""
    for term in ("dumb", "nonesuch"):
        said = in_terminal(d, {"TERM": term})
        check(said[0] == 111 and "'%s' cannot show" % term in said[1] and "--once" in said[1], "TERM=" + term, said)
    status, _ = in_terminal(d, {"TERM": "xterm", "IGNORE_HUP": "1"}, hang_up=True)
    equal(status, 0, "after its terminal is gone")


def in_terminal(d, env, hang_up=False):
    """Returns the exit status and all output. hang_up: the terminal goes away after the first output."""
    pid, fd = pty.fork()
    if not pid:
        os.environ.update(env)
        if "IGNORE_HUP" in env:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.execv(TOP, [TOP, "--runtime", d.dir])
    shown = b""
    while not (hang_up and b"layers" in shown):
        try:
            got = os.read(fd, 65536)
        except OSError:
            break
        if not got:
            break
        shown += got
    os.close(fd)
    end = Deadline(60)
    while not end.over():
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), " ".join(shown.decode(errors="replace").split())
        time.sleep(0.02)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    fail("ntx-top goes on without its terminal")


def many(d, model):
    """Six sessions do not fit on 80 x 24, so the screen says how many are missing; a taller one and --once have all."""
    clients = [d.client() for _ in range(6)]
    wait_for(lambda: json.loads(clients[0].status())["sessions"] == 0, 10, "the end of who left")
    clients[0].load(model, ram_bytes=24 << 20, ctx=400, sessions=6, link_nvme_bps=RATE)
    for c in clients:
        c.generate("Once", ignore_eos=True, max_tokens=380, temp=0.0)  # the last may have to wait for memory
    rows = lambda lines: [l for l in lines if re.match(r" +\d+    (waits|reads|writes) ", l)]
    t = Terminal(d.dir)
    more = "4 more not shown: a taller terminal, or ntx-top --once"
    lines = t.until(
        lambda lines: len(rows(lines)) == 2 and lines[22].strip() == more and list(lines),
        "two of six sessions, and how many more there are",
    )
    check(lines[23].startswith(" q quit  h help"), "keys:", lines[23])
    t.resize(80, 30)
    t.until(lambda lines: len(rows(lines)) == 6 and not any("not shown" in l for l in lines), "all of them on 80 x 30")
    t.end()
    once = subprocess.run(
        [TOP, "--runtime", d.dir, "--interval", "0.1", "--once"],
        capture_output=True,
        text=True,
        env=dict(os.environ, LC_ALL="C.UTF-8"),
    )
    check(len(rows(once.stdout.splitlines())) == 6 and "not shown" not in once.stdout, "--once", once.stdout)
    for c in clients:
        c.close()


def marks(d, model):
    """The row under the layers' map: layers that were skipped.

    With two sessions in a pass that would skip different layers, those that only one of them would skip.
    """
    clients = [d.client() for _ in range(2)]
    wait_for(lambda: json.loads(clients[0].status())["sessions"] == 0, 10, "the end of who left")
    clients[0].load(model, ram_bytes=16 << 20, ctx=800, sessions=2, link_nvme_bps=RATE, skip="script:3@0;5@1")
    write = lambda c: c.until(c.generate("Once", ignore_eos=True, max_tokens=700, temp=0.0), "token")
    t = Terminal(d.dir)
    write(clients[0])
    t.until(lambda lines: lines[11][11:].rstrip() == "   S", "the layer that is left out")
    write(clients[1])
    t.until(lambda lines: lines[11][11:].rstrip() == "   p p", "the layers that only one of two rows might leave out")
    check("s skipped p predicted" in t.screen.display[12], "legend:", t.screen.display[12])
    t.end()
    for c in clients:
        c.close()


def main():
    with tempfile.TemporaryDirectory(prefix="ntx-top-") as tmp, Daemons() as d:
        model = make_model(
            os.path.join(tmp, "m.gguf"),
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
            "--seed",
            "5",
        )
        c = d.client()
        c.load(model, ram_bytes=20 << 20, ctx=2000, link_nvme_bps=RATE)  # some chunks stay, some do not
        c.generate("Once upon a time", ignore_eos=True, max_tokens=1900, temp=0.0)
        live(d)
        plain(d)
        scripts(d)
        terminals(d)
        c.close()
        many(d, model)
        marks(d, model)


main()
