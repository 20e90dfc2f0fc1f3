#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`ntx chat`: what the user types, pastes, recalls and commands reaches the model, as the saved conversation shows.

On a terminal that pyte emulates, on a dumb terminal, and from a pipe through the service.
"""

import fcntl
import json
import os
import pty
import re
import select
import signal
import stat
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

NTX = os.path.join(BIN, "ntx")
SLOW = float(os.environ.get("NTX_TEST_SLOW", "1"))
tmp = tempfile.TemporaryDirectory(prefix="ntx-chat-")
here = lambda name: os.path.join(tmp.name, name)
os.environ.update(
    {
        "TMPDIR": tmp.name,
        "XDG_RUNTIME_DIR": "",
        "XDG_STATE_HOME": here("state"),
        "HOME": tmp.name,
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
    }
)
model = make_model(here("m.gguf"), "--ctx", "512")
big = make_model(
    here("big.gguf"), "--layers", "4", "--embd", "512", "--ff", "1536", "--heads", "8", "--kv", "2", "--type", "Q8_0"
)
CHAT = ("run", model, "--chat-template", "plain", "--ram", "64M", "--ctx", "512", "-n", "4", "--ignore-eos")
UP, LEFT, ENTER, ALT_ENTER = "\x1b[A", "\x1b[D", "\r", "\x1b\r"
paste = lambda text: "\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~"


class Chat:
    """ntx on a terminal of its own, and the content of its screen."""

    def __init__(self, *argv, size=(100, 30), stats=False, **env):
        self.screen = pyte.Screen(*size)
        self.stream = pyte.ByteStream(self.screen)
        self.raw, self.shown = b"", 0
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.environ.update(env)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
            os.execv(NTX, [NTX, *(argv or CHAT)])
        self.before = termios.tcgetattr(self.fd)[3]
        self.prompt()
        if stats:
            self.say("/set stats on")

    def read(self, seconds=0.02):
        while select.select([self.fd], [], [], seconds)[0]:
            try:
                data = os.read(self.fd, 65536)
            except OSError:
                return
            self.raw += data
            self.stream.feed(data)

    def until(self, condition, what, seconds=20):
        end = Deadline(5 * seconds * SLOW)
        while True:
            self.read()
            value = condition()
            if value:
                return value
            if end.over():
                fail(
                    "%s: not on the screen:\n%s\n%r"
                    % (what, "\n".join(x for x in self.screen.display if x.strip()), self.raw[-300:])
                )

    def line(self):
        return self.screen.display[self.screen.cursor.y].rstrip()

    def prompt(self):
        """Waits for an empty prompt after the output since the last one."""
        self.until(lambda: b"\n> " in self.raw[self.shown :] and self.line() == ">", "a prompt")
        text, self.shown = self.raw[self.shown :].decode(errors="replace"), len(self.raw)
        return text.replace("\r\n     ", " ")  # notes as one line

    def type(self, text):
        os.write(self.fd, text.encode())

    def typed(self, text, line):
        """Types, and waits until the line looks as given."""
        self.type(text)
        self.until(lambda: self.line() == line, "the line '%s'" % line)

    def say(self, text):
        """Sends a message or a command, and returns what was shown."""
        self.type(text + ENTER)
        return self.prompt()

    def saved(self):
        """The saved conversation: (system, [[question, answer], ...])."""
        if os.path.exists(here("saved.json")):
            os.remove(here("saved.json"))
        told = self.say("/save " + here("saved.json"))
        check("saved to" in told, "it was not saved:", told)
        return conversation(here("saved.json"))

    def end(self, keys="\x04"):
        self.type(keys)
        end = Deadline(100)
        while not end.over():
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.read()
                break
        else:
            fail("%r does not end it" % keys)
        after = termios.tcgetattr(self.fd)[3]
        os.close(self.fd)
        equal(after, self.before, "the terminal's modes after the end")
        equal(
            self.raw.rfind(b"\x1b[?2004l") > self.raw.rfind(b"\x1b[?2004h"),
            b"\x1b[?2004h" in self.raw,
            "bracketed paste is off again",
        )
        check(not re.search(rb"\x1b\[[0-9;]*m", self.raw), "there are colours")
        return os.waitstatus_to_exitcode(status)


def conversation(path):
    with open(path) as f:
        messages = json.load(f)["messages"]
    system = messages.pop(0)["content"] if messages and messages[0]["role"] == "system" else None
    equal([m["role"] for m in messages], ["user", "assistant"] * (len(messages) // 2), "roles")
    texts = [m["content"] for m in messages]
    return system, [texts[i : i + 2] for i in range(0, len(texts), 2)]


def asked(c):
    return [turn[0] for turn in c.saved()[1]]


def editing():
    c = Chat()
    c.typed("helo", "> helo")
    c.typed(LEFT + "l\x1b[C!", "> hello!")
    c.say("")
    c.typed("日本誤", "> 日本誤")
    c.typed("\x7f語 ü", "> 日本語 ü")
    equal(c.screen.cursor.x, 10, "the cursor behind wide characters")
    c.typed(LEFT * 3 + "x", "> 日本x語 ü")
    c.say("")
    c.typed("in the way", "> in the way")
    c.type("\x03")  # gives it up
    c.prompt()
    c.typed("narrow", "> narrow")
    c.screen.resize(20, 60)
    fcntl.ioctl(c.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
    c.typed("er", "> narrower")
    c.say("")
    c.say("   ")  # nothing
    c.say("")
    equal(asked(c), ["hello!", "日本x語 ü", "narrower"], "what was asked")
    mode = stat.S_IMODE(os.stat(here("state/ntx/history")).st_mode)
    equal((mode, stat.S_IMODE(os.stat(here("state/ntx")).st_mode)), (0o600, 0o700), "rights of the history")
    equal(c.end(), 0, "Ctrl-D")
    c = Chat()  # another run, which finds what was written
    c.type(UP)
    c.until(lambda: c.line().startswith("> /save"), "the last line of the last run")
    c.typed(UP, "> narrower")
    c.typed(UP, "> 日本x語 ü")
    c.typed(" again", "> 日本x語 ü again")
    c.say("")
    equal(asked(c), ["日本x語 ü again"], "what was found and changed")
    c.type("\x03")
    check("Ctrl-C once more" in c.prompt(), "how to end")
    equal(c.end("\x03"), -signal.SIGINT, "Ctrl-C twice where nothing is written")


def pasting():
    c = Chat()
    text = "first\n\n\tthird, and\nthe fourth line\n\n"
    c.type(paste(text))
    c.until(lambda: c.line() == "the fourth line", "the paste")
    check("\n> " not in c.raw[c.shown :].decode(), "it was sent before Enter")
    c.say(" it is")
    many = "\n".join("l%d" % i for i in range(40))
    c.typed("look: " + paste(many), "> look: [pasted 1: 40 lines]")
    c.typed(".", "> look: [pasted 1: 40 lines].")
    c.say("")
    c.typed("one" + ALT_ENTER + "two", "two")
    c.say("")
    c.type('"""\r')
    c.until(lambda: c.line() == "...", "the prompt of a text that goes on")
    c.type("a\r\r/clear\rb\"\"\"\r")
    c.prompt()
    c.type(paste('"""docs"""\ndef f(): pass'))
    c.until(lambda: c.line() == "def f(): pass", "a paste that begins with quotes")
    c.say("")
    want = [
        text.rstrip("\n") + " it is",
        "look: " + many + ".",
        "one\ntwo",
        "a\n\n/clear\nb",
        '"""docs"""\ndef f(): pass',
    ]
    equal(asked(c), want, "messages of several lines")
    # While an answer is being written, what is typed and pasted waits for the next line.
    c.type("now" + ENTER + paste("x\ny") + " z")
    c.until(lambda: c.line() == "y z", "what was typed ahead")
    c.say("")
    equal(asked(c)[-2:], ["now", "x\ny z"], "typed ahead")
    equal(c.end(), 0, "end")


def commands():
    c = Chat(*CHAT, "--seed", "7", "--system", "be brief", stats=True)
    check(
        all("/" + word in c.say("/help") for word in "help clear save load system regenerate set stats bye".split()),
        "help",
    )
    check("seed 7" in c.say("hello"), "the seed of the command line")
    system, turns = c.saved()
    equal((system, len(turns)), ("be brief", 1), "conversation")
    for _ in range(5):  # seeds are drawn at random: some give the short answer once more
        told = c.say("/regenerate")
        check(re.search(r"seed \d+", told) and "seed 7\r" not in told and "seed 7;" not in told, "the same seed:", told)
        again = c.saved()[1]
        equal((len(again), again[0][0]), (1, "hello"), "turns after /regenerate")
        if again != turns:
            break
    check(again != turns, "the answer is the same, five times")
    check("seed 7" in c.say("second"), "/regenerate has changed the seed for good")
    check(re.search(r"ntx: 2 tokens", c.say("/set n 2") + c.say("third")), "/set n")
    check("temp 0 " in c.say("/set temp 0") + c.say("/set"), "/set temp")
    context = lambda: re.search(r"context has (\d+)", c.say("/stats")).group(1)
    c.say("/set top_k=3")
    before, asked_last = context(), c.saved()[1][-1][0]
    c.say("/regenerate")
    equal((context(), c.saved()[1][-1][0]), (before, asked_last), "the last turn takes its own place")
    for wrong, why in (
        ("temp hot", "not a number from 0 to 100"),
        ("n 0", "at least 1"),
        ("raw on", "no option 'raw'"),
        ("chat-template x", "there is no 'x'"),
        ("temp", "NAME VALUE"),
    ):
        check(why in c.say("/set " + wrong), "/set", wrong)
    check("temp 0 " in c.say("/set") and "n 2" in c.say("/set"), "a wrong /set has changed something")
    c.say("/set stop a b")
    check('stop "a b"' in c.say("/set"), "/set stop")
    c.say("/set stop none")
    check("stop" not in c.say("/set"), "/set stop none")
    before = c.saved()
    told = c.say("/stats")
    check(
        "has 3 turns." in told
        and re.search(r"context has [0-9]+ of 512 tokens", told)
        and "The last answer has 2 tokens" in told,
        "/stats:",
        told,
    )
    check("be brief" in c.say("/system"), "/system")
    c.type('/system """two\rlines"""\r')
    c.prompt()
    equal(c.saved(), ("two\nlines", before[1]), "/system of two lines")
    n = int(re.search(r"prompt of (\d+)", c.say("fourth")).group(1))
    check(n > 40, "with another system text all is told again, not only", n)
    check(int(re.search(r"prompt of (\d+)", c.say("fifth")).group(1)) < n / 2, "and once only")
    c.say("/save " + here("kept.json"))
    kept = conversation(here("kept.json"))
    equal(stat.S_IMODE(os.stat(here("kept.json")).st_mode), 0o600, "rights of the file")
    told = c.say("/set think on") + c.say("thoughts")
    check("--think on: the model's chat template knows no thoughts" in told, "/set think on", told)
    check("knows no thoughts" not in c.say("more thoughts"), "it is told once")
    check("think on" in c.say("/set") and "none of on, off" in c.say("/set think loud"), "/set think")
    c.say("/set think auto")
    c.say("/clear")
    equal(c.saved(), ("two\nlines", []), "/clear")
    c.say("/load " + here("kept.json"))
    equal(c.saved(), kept, "/load")
    n = int(re.search(r"prompt of (\d+)", c.say("sixth")).group(1))
    check(n > 60, "what was loaded is not told to the model:", n)
    with open(here("thesis.txt"), "w") as f:
        f.write("years of work\n")
    check(
        "is no conversation" in c.say("/save " + here("thesis.txt"))
        and open(here("thesis.txt")).read() == "years of work\n",
        "another's file",
    )
    with open(here("bad.json"), "w") as f:
        json.dump({"messages": [{"role": "user", "content": "x"}, {"role": "robot", "content": "y"}]}, f)
    for name, why in (
        ("thesis.txt", "not a conversation"),
        ("none", "No such file"),
        ("bad.json", "message 2: the role"),
    ):
        check(why in c.say("/load " + here(name)), "/load", name)
    equal(len(c.saved()[1]), 6, "turns after what could not be loaded")
    with open(here("list.json"), "w") as f:
        json.dump(
            [
                {"role": "system", "content": "s"},
                {"role": "user", "content": "q"},
                {"role": "assistant", "content": "a"},
            ],
            f,
        )
    c.say("/load " + here("list.json"))
    equal(c.saved(), ("s", [["q", "a"]]), "a bare list of messages")
    check("there is no /nonsense" in c.say("/nonsense x"), "an unknown command")
    c.say("/usr/bin is a folder")
    c.say(" /bye")
    equal(asked(c), ["q", "/usr/bin is a folder", " /bye"], "what is no command")
    equal([f for f in os.listdir(tmp.name) if f.startswith(("saved.json.", "kept.json."))], [], "left behind by /save")
    equal(c.end("/bye\r"), 0, "/bye")


def outgrown():
    c = Chat(
        "run",
        model,
        "--chat-template",
        "plain",
        "--ram",
        "64M",
        "--ctx",
        "256",
        "-n",
        "12",
        "--ignore-eos",
        "--system",
        "be brief",
        stats=True,
    )
    told, n = "", 0
    while "outgrown" not in told and n < 20:
        n += 1
        told = c.say("tell me more of what happened then, number %d" % n)
    m = re.search(r"outgrown the context: turns? 1(?: to (\d+))? (?:is|are) left out.*system's\s+text stays", told)
    check(m and 4 < n < 15, "not told:", told)
    left, prompt = int(m.group(1) or 1), int(re.search(r"prompt of (\d+)", told).group(1))
    check(256 / 3 < prompt <= 256 * 3 / 4, "tokens of what is kept:", prompt)
    per_turn = prompt / (n - left)
    check(prompt + per_turn > 256 * 3 / 4, "another turn would have fitted: %d tokens in %d turns" % (prompt, n - left))
    told = c.say("and on")
    check("outgrown" not in told and "; peak " in told, "the next turn:", told)
    stats = c.say("/stats")
    check(
        re.search(r"has %d turns.*Turns? 1( to %d)? (is|are) left out" % (n + 1, left), stats, re.S), "/stats:", stats
    )
    told = c.say("word " * 300)
    check(
        re.search(r"too long even alone: the prompt has (more than )?\d+ tokens", told),
        "a message that is too long:",
        told,
    )
    check("; peak " in c.say("short"), "the conversation goes on")
    system, turns = c.saved()
    equal((system, len(turns)), ("be brief", n + 2), "all is kept here")
    told = c.say("/clear") + c.say("hello")
    check("outgrown" not in told and int(re.search(r"prompt of (\d+)", told).group(1)) < 40, "/clear:", told)
    told = c.say("/set n 4000000") + c.say("write until it is full")
    check(
        "context of 256 tokens is full, which cut the answer" in told.replace("\r\n", "").replace("  ", " "),
        "a full context:",
        told,
    )
    check(re.search(r"outgrown the context.*; peak ", c.say("go on"), re.S), "after a full context")
    equal(c.end(), 0, "end")


def stopping():
    """Ctrl-C stops the answer, and the conversation keeps what was written."""
    c = Chat(
        "run",
        big,
        "--chat-template",
        "plain",
        "--ram",
        "10M",
        "--ctx",
        "512",
        "--ignore-eos",
        "--link",
        "nvme=30M",
        "-n",
        "400",
        stats=True,
    )
    c.type("hello" + ENTER)
    signs = rb"\x1b\[[0-9;?]*[A-Za-z]|(layer|prompt|loading)[^\r\n]*"  # of life
    c.until(
        lambda: re.sub(signs, b"", c.raw[c.shown :].partition(b"hello\r\n")[2]).strip(), "the beginning of an answer"
    )
    c.type("\x03")
    told = c.prompt()
    check("; peak " in told and "saved" not in told, "statistics of what was stopped:", told)
    turns = c.saved()[1]
    check(len(turns) == 1 and 0 < len(turns[0][1]) < 400, "the answer's beginning:", turns)
    check("; peak " in c.say("/set n 2") + c.say("and then?"), "the conversation goes on")
    os.kill(c.pid, signal.SIGTERM)
    equal(c.end(""), -signal.SIGTERM, "SIGTERM at the prompt")


def stopping_beside_others():
    """A pass with another client's rows is not aborted; the user need not wait for its end."""
    with Daemons() as d:
        argv = ("load", big, "--ram", "10M", "--ctx", "256", "--sessions", "2", "--link", "nvme=60M")
        p = subprocess.run([NTX, *argv, "--socket", d.socket()], capture_output=True)
        equal(p.returncode, 0, p.stderr)
        k = d.client()
        k.until(k.generate("x", ignore_eos=True), "token")
        c = Chat("chat", "--socket", d.socket(), "--chat-template", "plain", "--ignore-eos", "-n", "200", stats=True)
        c.type("hello" + ENTER)
        c.until(lambda: c.raw[c.shown :].partition(b"hello\r\n")[2].strip(), "the beginning of an answer")
        with d.held("iod"):
            c.type("\x03")
            c.until(lambda: b"ends with the pass under way" in c.raw, "why it takes so long")
            c.type("\x03")
            c.prompt()
            equal(asked(c), ["hello"], "what was asked")
        k.close()
        check("; peak " in c.say("/set n 2") + c.say("and then?"), "the conversation goes on")
        equal(c.end(), 0, "end")


def dumb():
    c = Chat(TERM="dumb")
    c.say("plain words")
    equal(asked(c), ["plain words"], "on a dumb terminal")
    check(b"\x1b[" not in c.raw.replace(b"\r\x1b[K", b""), "escape sequences on a dumb terminal:", c.raw)
    equal(c.end(), 0, "Ctrl-D on a dumb terminal")


def service():
    """From a pipe, with daemons that already run; then on a terminal."""
    with Daemons() as d:

        def pipe(text, *options):
            options = options or ("-v",)  # a line of statistics for each answer
            p = subprocess.run(
                [NTX, "chat", "--socket", d.socket(), "--chat-template", "plain", "-n", "4", "--ignore-eos", *options],
                input=text.encode(),
                capture_output=True,
                timeout=200,
            )
            return p.returncode, p.stdout, p.stderr.decode()

        load = subprocess.run(
            [NTX, "load", model, "--ram", "64M", "--ctx", "256", "--socket", d.socket()], capture_output=True
        )
        equal(load.returncode, 0, load.stderr)
        code, out, err = pipe(
            'first\n\n"""\nof several\n\nlines\n"""\r\nlast, without an end/\n/save %s\nnot ended' % here("piped.json")
        )
        equal(
            (code, [t[0] for t in conversation(here("piped.json"))[1]]),
            (0, ["first", "of several\n\nlines", "last, without an end/"]),
            err,
        )
        check("\x1b" not in err and "> " not in err and err.count("prompt of") == 4, "on a pipe:", err)
        code, out, err = pipe("a\n/nonsense\nb\n")
        equal((code, err.count("prompt of")), (111, 1), "a command that is none, in a script")
        code, out, err = pipe("word " * 20 + "\n" + ("word " * 12 + "\n") * 12, "--quiet")
        equal((code, err), (0, ""), "outgrown quietly")
        code, out, err = pipe("word " * 300)
        check(code == 111 and "too long even alone" in err, "too long in a script:", err)
        c = Chat("chat", "--socket", d.socket(), "--chat-template", "plain", "-n", "4", "--ignore-eos", stats=True)
        first, second = (
            int(re.search(r"prompt of (\d+)", c.say(x)).group(1)) for x in ("through the service", "again")
        )
        check(second < first, "the daemons do not keep the conversation:", first, second)
        # After a load of another model, it gets the whole conversation.
        for argv in (("unload",), ("load", model, "--ram", "64M", "--ctx", "256")):
            p = subprocess.run([NTX, *argv, "--socket", d.socket()], capture_output=True)
            equal(p.returncode, 0, p.stderr)
        check(
            int(re.search(r"prompt of (\d+)", c.say("third")).group(1)) > first + second,
            "the conversation after another load",
        )
        equal(len(c.saved()[1]), 3, "turns")
        # The service ends and comes back: nothing that was said is lost.
        d.kill("computed")
        check("closed the connection" in c.say("lost"), "the daemon's end")
        check("no daemons run there" in c.say("lost still"), "no daemons")
        d.spawn("computed")
        wait_for(
            lambda: not subprocess.run([NTX, *argv, "--socket", d.socket()], capture_output=True).returncode,
            20,
            "another load",
        )
        check(
            int(re.search(r"prompt of (\d+)", c.say("fourth")).group(1)) > first + second,
            "the conversation after the service's end",
        )
        equal(asked(c)[2:], ["third", "fourth"], "what was asked")
        equal(c.end(), 0, "end")


def cut_by_the_service():
    """The service ends in the middle of an answer: what came is kept.

    When the service is back, the conversation goes on from there.
    """
    with Daemons() as d:
        load = lambda *link: subprocess.run(
            [NTX, "load", big, "--ram", "10M", "--ctx", "256", *link, "--socket", d.socket()], capture_output=True
        )
        equal(load("--link", "nvme=30M").returncode, 0, "load")
        c = Chat("chat", "--socket", d.socket(), "--chat-template", "plain", "--ignore-eos", "-n", "200", stats=True)
        c.type("hello" + ENTER)
        c.until(
            lambda: re.sub(rb"(layer|prompt)[^\r\n]*", b"", c.raw[c.shown :].partition(b"hello\r\n")[2]).strip(),
            "the beginning of an answer",
        )
        d.child["computed"].send_signal(signal.SIGTERM)
        check(
            "the answer is cut short: ntx-computed is shutting down" in c.prompt(),
            "what is said of it:",
            c.raw[c.shown :],
        )
        turns = c.saved()[1]
        check(len(turns) == 1 and turns[0][0] == "hello" and turns[0][1], "what is kept:", turns)
        d.child["computed"].wait()
        d.spawn("computed")
        wait_for(lambda: not load().returncode, 20, "another load")
        check("; peak " in c.say("/set n 2") + c.say("and then?"), "the conversation goes on")
        now = c.saved()[1]
        equal((now[0], now[1][0]), (turns[0], "and then?"), "the conversation")
        equal(c.end(), 0, "end")


for part in (editing, pasting, commands, outgrown, stopping, stopping_beside_others, dumb, service, cut_by_the_service):
    part()
print("a chat is as it should be")
