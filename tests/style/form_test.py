#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The form of the code: lines of at most 120 columns, no conditional expression within another, statics that say their
object, comments with a subject, none of the words that the field has better ones for, and commit subjects of at most
72 characters.

With paths as arguments, only what lies there is looked at (tests/style/form_test.py computed/engine)."""

import collections
import os
import re
import subprocess
import sys

SOURCE = os.environ.get("NTX_SOURCE") or os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COLUMNS = 120
SHARED = 5  # files that may not define a static of the same name
# Tables of data and texts whose lines are values.
DATA = {"model/codes.h", "tests/unit/template/make_cases.py"}
# Words that were ours alone, as parts of identifiers: the field's word stands beside it.
PRIVATE = {
    "taint": "quarantine",
    "hasten": "promote",
    "foretold": "predicted",
    "lockin": "sandbox",
    "guesser": "drafter",
    "guess": "draft",
    "shelf": "prefix store",
    "outlet": "output budget",
    "preamble": "warm prefix",
    "octet": "x8",
    "octets": "x8",
    "eights": "x8",
    "latents": "mla",
    "stretch": "chunk",
    "stranger": "idle",
    "strangers": "idle",
    "guesses": "drafts",
    "ask": "request",
    "asks": "requests",
    "chosen": "topk, routed or selected",
}
ANY_PRIVATE = re.compile("(?<![a-z])(?:%s)(?![a-z])" % "|".join(w for p in PRIVATE for w in (p, p.title(), p.upper())))
TOKEN = re.compile(
    r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[A-Za-z_]\w*|\d[\w.]*|\n|\S", re.S
)
# A comment begins with its subject.
NO_SUBJECT = re.compile(r"^\s*(?:/\*| \*|#) (?:What|Who|Whose|Of which) [a-z]")
STATIC = re.compile(
    r"^(?:static|INLINE|DEV|DEV_APART)\b[^;={}()]*?\b(\w+)\((?:[^;{}]|\n)*?\)\s*\n?\{", re.M
)


def tracked():
    names = subprocess.run(["git", "-C", SOURCE, "ls-files"], capture_output=True, text=True).stdout.split("\n")
    if len(names) < 100:  # an unpacked archive
        names = [
            os.path.relpath(os.path.join(d, f), SOURCE)
            for d, dirs, files in os.walk(SOURCE)
            if not re.search(r"/(build|\.)", d[len(SOURCE) :])
            for f in files
        ]
    return sorted(n for n in names if os.path.isfile(os.path.join(SOURCE, n)) and n not in DATA)


def read(name):
    with open(os.path.join(SOURCE, name), errors="replace") as f:
        return f.read()


def is_c(name):
    return name.endswith((".c", ".h", ".cu", ".cuh"))


def has_lines(name):
    return is_c(name) or re.search(r"\.(py|sh|cmake|proto|in)$|(^|/)(CMakeLists\.txt|run|alone|quickstart)$", name)


def tokens(text):
    """(line, token), without comments, strings and characters."""
    line = 1
    for m in TOKEN.finditer(text):
        t = m.group(0)
        if t[0] not in "\"'" and not t.startswith(("/*", "//")):
            yield line, t, m.start()
        line += t.count("\n")


def nested_conditionals(text):
    """Lines on which a `?` stands inside another conditional expression."""
    open_ones, macro, found = [0], False, []
    for line, t, at in tokens(text):
        if t in "([{":
            open_ones.append(0)
        elif t in ")]}":
            if len(open_ones) > 1:
                open_ones.pop()
        elif t in ";,":
            open_ones[-1] = 0
        elif t == "?":
            if any(open_ones):
                found.append(line)
            open_ones[-1] += 1
        elif t == "#":
            macro = True
        elif t == "\n" and macro and text[at - 1] != "\\":
            open_ones, macro = [0], False
    return found


def parts(identifier):
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", identifier).lower().split("_")


def private_words(name, text):
    if not ANY_PRIVATE.search(text):  # most files: no need to take them apart
        return
    for line, t, _ in tokens(text):
        if t[0].isalpha() or t[0] == "_":
            for part in parts(t):
                if part in PRIVATE:
                    yield "%s:%d: %s: say %s" % (name, line, t, PRIVATE[part])


def subjects():
    """Of commits since this check came."""
    git = ["git", "-C", SOURCE, "log", "--format=%H%x01%s%x01%b%x02"]
    first = subprocess.run(
        git + ["--diff-filter=A", "--", "tests/style/form_test.py"], capture_output=True, text=True
    ).stdout.split("\x01")[0]
    if not first.strip():
        return
    log = subprocess.run(git + [first.strip() + "..HEAD"], capture_output=True, text=True).stdout
    for entry in log.split("\x02"):
        if entry.strip():
            commit, subject, body = entry.strip("\n").split("\x01")
            if len(subject) > 72:
                yield "commit %s: a subject of %d characters (72 at most)" % (commit[:8], len(subject))
            if not body.strip() and not subject.startswith("Merge "):
                yield "commit %s: no body that says why: %s" % (commit[:8], subject)


def main(paths):
    bad, statics, looked = [], collections.defaultdict(set), 0
    here = lambda name: not paths or name.startswith(tuple(paths))
    for name in tracked():
        if not has_lines(name):
            continue
        text, looked = read(name), looked + 1
        if here(name):
            for number, line in enumerate(text.split("\n"), 1):
                if len(line) > COLUMNS:
                    bad.append("%s:%d: %d columns (%d at most)" % (name, number, len(line), COLUMNS))
                if NO_SUBJECT.match(line):
                    bad.append("%s:%d: a comment that opens without a subject" % (name, number))
        if not is_c(name):
            continue
        if here(name):
            bad += ["%s:%d: a conditional expression within another" % (name, n) for n in nested_conditionals(text)]
            bad += private_words(name, text)
        if not name.startswith(("tests/", "bench/")):
            for m in STATIC.finditer(re.sub(r"/\*.*?\*/", "", text, flags=re.S)):
                statics[m.group(1)].add(name)
    for static, names in sorted(statics.items()):
        if len(names) >= SHARED and any(map(here, names)):
            bad.append(
                "static %s is defined in %d files: say its object: %s"
                % (static, len(names), " ".join(n for n in sorted(names) if here(n)))
            )
    if not paths:
        bad += subjects()
    if looked < 500:
        bad.append("only %d files were looked at" % looked)
    print("\n".join(bad) or "%d files have the form" % looked)
    return 1 if bad else 0


sys.exit(main(sys.argv[1:]))
