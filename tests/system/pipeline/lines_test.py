#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What stands on the terminal's lines: words that are not split, grapheme clusters, questions, and the notes around.

Answers and notes are broken between words at any width, also after a change of it. Clusters are edited as one character
on both kinds of terminals. A resumed chat shows its end and takes its own model. /save asks before it writes over
something. Statistics come when they are asked for. Progress is erased before lines of the daemons.
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
import urllib.request

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, Deadline, check, equal, fail, make_model  # noqa: E402

try:
    import pyte
except ImportError:
    print("skipped: python3-pyte, which plays the terminal, is not installed")
    sys.exit(77)

NTX = os.path.join(BIN, "ntx")
DEMO = os.path.join(os.environ["NTX_SOURCE"], "models", "demo.gguf")
SLOW = float(os.environ.get("NTX_TEST_SLOW", "1"))
tmp = tempfile.TemporaryDirectory(prefix="ntx-lines-")
here = lambda name: os.path.join(tmp.name, name)
os.environ.update(
    {
        "TMPDIR": tmp.name,
        "XDG_RUNTIME_DIR": "",
        "NTX_RUNTIME": here("run"),
        "XDG_STATE_HOME": here("state"),
        "XDG_CONFIG_HOME": here("config"),
        "HOME": tmp.name,
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
    }
)
os.chdir(tmp.name)
SMALL = ("--ram", "64M", "--threads", "1")
STORY = ("run", DEMO, "Once upon a time", "--raw", "-n", "70", "--temp", "0", *SMALL)
CHAT = ("--chat-template", "plain", "-n", "8", "--temp", "0", "--ignore-eos", *SMALL)
LEFT, ENTER, DELETE, BACKSPACE = "\x1b[D", "\r", "\x1b[3~", "\x7f"
FAMILY, FLAG, THUMB, HEART = "\U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f1e9\U0001f1ea", "👍🏽", "❤️"


class WholeScreen(pyte.Screen):
    """A terminal that shows a cluster as a whole, in two columns."""

    @property
    def display(self):  # the second cell of a wide character is empty
        return ["".join(self.buffer[y][x].data for x in range(self.columns)) for y in range(self.lines)]

    def draw(self, data):
        for c in data:
            x, line = self.cursor.x, self.buffer[self.cursor.y]
            at = x - 1 if x and line[x - 1].data else x - 2
            before = line[at].data if x else ""
            if before and (c in "\u200d\ufe0f\U0001f3fd" or before.endswith("\u200d")):
                line[at] = line[at]._replace(data=before + c)
                if c == "\ufe0f":
                    line[x] = line[at]._replace(data="")
                    self.cursor.x += 1
            else:
                super().draw(c)


class Terminal:
    """ntx on a terminal of its own, with all screens that were to be seen."""

    def __init__(self, *argv, size=(80, 30), whole=False):
        self.screen = (WholeScreen if whole else pyte.Screen)(*size)
        self.stream, self.whole = pyte.ByteStream(self.screen), whole
        self.raw, self.pictures, self.code = b"", [], None
        self.pid, self.fd = pty.fork()
        if not self.pid:
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
            os.execv(NTX, [NTX, *argv])

    def read(self, seconds=0.02):
        while self.code is None and select.select([self.fd], [], [], seconds)[0]:
            try:
                data = os.read(self.fd, 4096)
            except OSError:
                self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                return
            if b"\x1b[c" in data:  # the answers of a terminal
                os.write(self.fd, b"\x1b[?2027;%d$y\x1b[?62;22c" % (2 if self.whole else 0))
            self.raw += data
            self.stream.feed(data)
            self.pictures.append(self.lines())

    def until(self, condition, what, seconds=20):
        end = Deadline(5 * seconds * SLOW)
        while True:
            self.read()
            value = condition()
            if value:
                return value
            if end.over():
                fail("%s: not on the screen:\n%s\n%r" % (what, "\n".join(self.lines()), self.raw[-300:]))

    def lines(self):
        return [line.rstrip() for line in self.screen.display]

    def line(self):
        return self.screen.display[self.screen.cursor.y].rstrip()

    def prompt(self, want=">"):
        self.until(lambda: self.line() == want, "the prompt " + want)
        return "\n".join(self.lines())

    def type(self, text):
        os.write(self.fd, text.encode())

    def say(self, text, want=">"):
        """Types a line; returns the screen from that line on."""
        before = self.raw.count(b"\n")
        self.type(text + ENTER)
        self.until(lambda: self.raw.count(b"\n") > before and self.line() == want, "the prompt " + want)
        lines = self.lines()
        typed = text[-20:] if len(text) > 1 else ("[y/N] " + text).rstrip()
        at = max([i for i, line in enumerate(lines) if line.endswith(typed)], default=-1)
        return "\n".join(lines[at + 1 :])

    def resize(self, columns, rows=30):
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def end(self, keys="\x04"):
        self.type(keys)
        return self.ended()

    def ended(self):
        self.until(lambda: self.code is not None, "the end")
        return self.code


def plain(*argv):
    p = subprocess.run([NTX, *argv], capture_output=True, stdin=subprocess.DEVNULL, timeout=200)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


def not_split(lines, words, width):
    """Each line has as many words as fit, and all are there."""
    got = [line.split() for line in lines]
    equal([w for line in got for w in line], words, "words")
    for line, after in zip(lines, got[1:]):
        check(len(line) + 1 + len(after[0]) > width, "a word more fits:", line, after)
    check(max(len(line) for line in lines) <= width, "too long", lines)


def answers():
    code, text, said = plain(*STORY)
    equal((code, text.count("\n")), (0, 1), "a story to a pipe, as it is: " + said)
    words = text.split()
    check(len(words) > 40, "a longer story is wanted", text)
    for width in (80, 40, 23):
        t = Terminal(*STORY, size=(width, 30))
        equal(t.ended(), 0, "a story")
        not_split([line for line in t.lines() if line], words, width)
        for p in t.pictures:  # not even for a moment is a word in two parts
            seen = [w for line in p for w in line.split() if not line.startswith(("loading", "planning", "prompt"))]
            equal(seen, words[: len(seen)], "words of a picture")
    t = Terminal(*STORY, "--no-wrap", size=(40, 30))
    equal(t.ended(), 0, "a story")
    check("".join(line.ljust(40) for line in t.lines()).startswith(text[:-1]), "--no-wrap:", t.lines())


def chat_lines():
    t = Terminal("run", DEMO, *CHAT, "-n", "40", size=(40, 40))
    t.prompt()
    note = "ntx: a chat: /help lists the commands, Ctrl-C stops an answer, Ctrl-D ends it"
    equal(
        t.lines()[:3],
        ["ntx: a chat: /help lists the commands,", "     Ctrl-C stops an answer, Ctrl-D ends", "     it"],
        note,
    )
    told = t.say("/help")
    check(all(len(line) <= 40 for line in told.splitlines()), "/help", told)
    words = "help clear save load list system regenerate set stats bye".split()
    check(all("\n/" + w in t.raw.decode() for w in words), "/help lacks a command", told)
    t.say("/clear")
    t.resize(30, 40)  # between two lines, and it is kept to
    told = t.say("/nonsense")
    want = ["ntx: there is no /nonsense;", "     /help lists the commands;", "     a space before the /"]
    equal(told.splitlines(), [*want, "     makes it a message", ">"], "a note after the change")
    t.say("/set wrap off")
    told = t.say("/nonsense")
    check("/help lists\nthe" not in told and len(told.splitlines()[0]) == 30, "/set wrap off", told)
    equal(t.end(), 0, "end")
    t = Terminal("run", DEMO, *CHAT, size=(80, 24))
    t.prompt()
    told = t.say("/help")
    check(told.splitlines()[0].endswith("this list"), "/help does not fit on 80x24", told)
    equal(t.end(), 0, "end")


def clusters(whole):
    t = Terminal("run", DEMO, *CHAT, whole=whole)
    t.prompt()
    equal(b"\x1b[?2027h" in t.raw, whole, "the mode of clusters")
    at = lambda text, column: t.until(
        lambda: (t.line(), t.screen.cursor.x) == (("> " + text).rstrip(), column),
        "'%s' with the cursor in column %d, not %d in '%s'" % (text, column, t.screen.cursor.x, t.line()),
    )
    shown = (lambda c: c) if whole else (lambda c: c[0])
    for cluster, columns in ((FAMILY, 2), (THUMB, 2), (HEART, 2 if whole else 1)):
        c = shown(cluster)
        for part in cluster:  # as some keyboards send it
            t.type(part)
            t.read(0.05)
        t.type("x")
        at(c + "x", 3 + columns)
        t.type(LEFT + LEFT + "b")
        at("b" + c + "x", 3)
        t.type(DELETE)
        at("bx", 3)
        t.type(cluster + BACKSPACE + cluster)
        at("b" + c + "x", 3 + columns)
        t.say("")
    t.type("cafe")
    t.type("\u0301")
    at("café", 6)
    t.type(LEFT + "-")
    at("caf-é", 6)
    t.type(BACKSPACE + "\x05" + BACKSPACE + "e\u0301")
    at("café", 6)
    t.type(" " + FLAG)
    t.until(lambda: t.screen.cursor.x == 9, "a flag in two columns")
    t.type("!" + LEFT + BACKSPACE)
    at("café !", 7)
    t.say("")
    t.type("\x1b[200~" + FAMILY + "e\u0301\x1b[201~")
    at(shown(FAMILY) + "é", 5)
    t.say("")
    t.type("\x1b[A" + BACKSPACE + "!")  # out of the history
    at(shown(FAMILY) + "!", 5)
    t.say("")
    t.say("/save " + here("clusters-%d.json" % whole))
    with open(here("clusters-%d.json" % whole)) as f:
        asked = [m["content"] for m in json.load(f)["messages"] if m["role"] == "user"]
    want = ["b" + c + "x" for c in (FAMILY, THUMB, HEART)] + ["cafe\u0301 !", FAMILY + "e\u0301", FAMILY + "!"]
    equal(asked, want, "what was asked")
    equal(t.end(), 0, "end")
    equal(b"\x1b[?2027l" in t.raw, whole, "the mode is off again")


def statistics():
    code, _, said = plain(*STORY)
    equal((code, said), (0, ""), "no statistics unless they are asked for")
    code, _, said = plain(*STORY, "-v")
    check(re.search(r"^ntx: 70 tokens.*; prompt of \d+ tokens.*; seed \d+", said, re.M), "-v:", said)
    t = Terminal("run", DEMO, *CHAT)
    t.prompt()
    check("tokens" not in t.say("hello"), "statistics without -v")
    check("stats off" in t.say("/set") and "stats on" in t.say("/set stats on") + t.say("/set"), "/set stats on")
    check(re.search(r"ntx: 8 tokens", t.say("hello again")), "/set stats on")
    told = t.say("/stats")
    check("The conversation has 2 turns." in told and "The last answer has 8 tokens" in told, "/stats", told)
    t.say("/set stats off")
    check("tokens" not in t.say("and once more"), "/set stats off")
    check("neither on nor off" in t.say("/set stats maybe"), "a wrong value")
    equal(t.end(), 0, "end")


def saving():
    t = Terminal("run", DEMO, *CHAT)
    t.prompt()
    t.say("hello")
    told = t.say("/save my talk", "[y/N]")
    check("save as the file 'my talk'?" in told, "blanks:", told)
    check("nothing is saved" in t.say("") and not os.path.exists("my talk"), "no is the default")
    t.say("/save my talk", "[y/N]")
    check("1 turn saved to the file" in t.say("y") and os.path.exists("my talk"), "yes")
    check("saved to" in t.say("/save my talk", "[y/N]") + t.say("y"), "its own file is not asked for again")
    t.say('/save "in quotes"')
    check(os.path.exists("in quotes"), "quotes")
    told = t.say('/save "my talk"', "[y/N]")
    check("is there already: write over it?" in told, "another file:", told)
    check("nothing is saved" in t.say("n"), "no")
    check("is a folder" in t.say("/save " + tmp.name) and "is a folder" in t.say("/save no/"), "a folder")
    check("No such file" in t.say("/save /nowhere/x"), "a folder that is none")
    t.say("/save talk")
    t.say("/clear")
    t.say("another")
    told = t.say("/save talk", "[y/N]")
    check("a conversation talk is there already: write over it?" in told, "a name:", told)
    check("nothing is saved" in t.say("n"), "no")
    t.say("/save talk", "[y/N]")
    check("saved as talk" in t.say("y"), "yes")
    equal(t.end(), 0, "end")


def resuming():
    """The end of the conversation is shown, and the model need not be named."""
    code, _, said = plain("run", "--resume", "nothing")
    check(code == 111 and "no conversation is named nothing" in said, "no conversation:", said)
    code, _, said = plain("run", "--resume", "tlak")
    check(code == 111 and "did you mean talk?" in said, "a misspelt conversation:", said)
    with open(here("state/ntx/chats/talk.json")) as f:
        saved = json.load(f)
    equal(saved["model"], os.path.realpath(DEMO), "the model in the file")
    long = "\n".join("line %d of a long answer" % i for i in range(20))
    saved["messages"] = [
        {"role": role, "content": text}
        for i in range(5)
        for role, text in (("user", "question %d" % i), ("assistant", long if i == 4 else "answer %d" % i))
    ]
    with open(here("state/ntx/chats/talk.json"), "w") as f:
        json.dump(saved, f)
    # Without a name it is the last one that was saved.
    for name in (["talk"], []):
        t = Terminal("run", *CHAT, "--resume", *name)
        t.prompt()
        end = ["line %d of a long answer" % i for i in (16, 17, 18, 19)]
        first = ["line %d of a long answer" % i for i in range(4)]
        shown = ["[3 earlier turns]", "> question 3", "answer 3", "> question 4", *first, "[12 more lines]", *end]
        lines = t.lines()
        at = lines.index("[3 earlier turns]")
        equal(lines[at : at + len(shown)], shown, "the last turns")
        check("held with" not in "\n".join(lines), "nothing has changed", lines)
        equal(t.end(), 0, "end")
    # Another model is named.
    other = make_model(here("other.gguf"), "--ctx", "512")
    t = Terminal("run", other, *CHAT, "--resume", "talk")
    check("held with demo.gguf; from now on other.gguf answers" in t.prompt(), "another model", t.lines())
    t.say("go on")
    equal(t.end(), 0, "end")
    t = Terminal("run", *CHAT, "--resume", "talk")
    check("held with" not in t.prompt() and "[4 earlier turns]" in t.prompt(), "it is remembered", t.lines())
    equal(t.end(), 0, "end")
    os.remove(other)
    code, _, said = plain("run", "--resume", "talk")
    check(code == 111 and said.count("\n") == 1, "the model is gone:", said)
    check("with %s (No such file" % other in said and "ntx run MODEL --resume talk" in said, "how to go on:", said)


def ready():
    for where, pattern in (
        ("127.0.0.1:0", r"ready with demo.gguf: (http://127.0.0.1:\d+)/ \(chat page\), API at \1/v1; Ctrl-C stops"),
        ("unix:" + here("http.sock"), r"ready with demo.gguf: unix:\S+, API at /v1; Ctrl-C stops"),
    ):
        t = Terminal("serve", DEMO, *SMALL, "--listen", where, size=(300, 30))
        m = t.until(lambda: re.search(pattern, "\n".join(t.lines())), "the URL")
        if m.groups():
            with urllib.request.urlopen(m.group(1) + "/v1/models", timeout=20) as r:
                check(b'"data"' in r.read(), "the URL is right")
        equal(t.end("\x03"), 0, "Ctrl-C")


def progress():
    """The daemons' lines do not stand behind the line that shows how far the load is."""
    big = make_model(
        here("big.gguf"), "--layers", "4", "--embd", "512", "--ff", "1536", "--heads", "8", "--type", "Q8_0"
    )
    t = Terminal("up", big, "--ram", "64M", "--link", "nvme=8M", size=(200, 40))
    t.until(lambda: "ready with big.gguf" in "\n".join(t.lines()), "the load", 60)
    seen = {line for p in t.pictures for line in p}
    check(any(line.startswith("loading") for line in seen), "no progress", seen)
    check(any(line.startswith("ntx-") for line in seen), "no line of a daemon", seen)
    check(not any(re.search(r"\S.*ntx-(iod|computed|predictor):", line) for line in seen), "glued:", seen)
    check(not any(re.search(r"(loading|planning|left).*ready", line) for line in seen), "glued:", seen)
    os.kill(t.pid, signal.SIGINT)
    equal(t.ended(), 0, "end")


for part in (answers, chat_lines, statistics, saving, resuming, ready, progress):
    part()
for kind in (False, True):
    clusters(kind)
print("the terminal's lines are as they should be")
