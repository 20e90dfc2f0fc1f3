#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Documents hold: every relative link leads to a file and, behind #, to a heading; every `path` in them exists; README
is short; the logs have their form; no line has more than 120 columns; no sentence of docs/ has more than 40 words;
protocol.md names every message; CHANGELOG's version is the build's. With an argument, the root of an installed
documentation: links alone."""

import os
import re
import subprocess
import sys

ROOT = sys.argv[1] if len(sys.argv) > 1 else os.environ["NTX_SOURCE"]
INSTALLED = len(sys.argv) > 1
README_LINES, README_BYTES = 150, 10000
SENTENCE_WORDS, COLUMNS = 40, 120
bad = []


def pages():
    out = []
    for folder, folders, names in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if not f.startswith((".", "build")) and f != "__pycache__")
        out += [os.path.relpath(os.path.join(folder, n), ROOT) for n in sorted(names) if n.endswith(".md")]
    return out


def read(name):
    with open(os.path.join(ROOT, name), encoding="utf-8") as f:
        return f.read()


def prose(text):
    """Without blocks of code."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return "\n".join(
        "" if line.startswith("    ") and not line.lstrip().startswith(("- ", "* ")) else line
        for line in text.split("\n")
    )


def slugs(name):
    heads = re.findall(r"^#+ +(.+?)\s*$", read(name), re.M)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", h)).strip().lower().replace(" ", "-")
        for h in heads
    }


def links(name, text):
    """What of the tree the page leads to."""
    found = set()
    for n, line in enumerate(prose(text).split("\n"), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, anchor = target.partition("#")
            full = os.path.normpath(os.path.join(os.path.dirname(name), path)) if path else name
            if full.startswith("..") or not os.path.exists(os.path.join(ROOT, full)):
                bad.append("%s:%d: no file %s" % (name, n, target))
            elif anchor and full.endswith(".md") and anchor not in slugs(full):
                bad.append("%s:%d: no heading #%s in %s" % (name, n, anchor, full))
            else:
                found.add(full)
    return found


def paths(name, text):
    """Names of folders at the root begin what is taken for a path, but for what a build makes."""
    tops = [d for d in os.listdir(ROOT) if os.path.isdir(os.path.join(ROOT, d)) and not d.startswith((".", "build"))]
    for n, line in enumerate(text.split("\n"), 1):
        for path in re.findall(r"`((?:%s)/[\w./-]*)`" % "|".join(map(re.escape, tops)), line):
            if not os.path.exists(os.path.join(ROOT, path)):
                bad.append("%s:%d: no file %s" % (name, n, path))
        for path in re.findall(r"`([\w-]+\.(?:md|txt|proto))`", line):
            if not any(
                os.path.exists(os.path.join(ROOT, folder, path))
                for folder in ("", os.path.dirname(name), "docs", "models", "proto")
            ):
                bad.append("%s:%d: no file %s" % (name, n, path))


def log_form(name, text):
    if "\nSummary of the present state:\n" not in text:
        bad.append("%s: it has no summary of the present state" % name)
    dates = re.findall(r"^## (\d{4}-\d\d-\d\d): ", text, re.M)
    if len(dates) != len(re.findall(r"^## ", text, re.M)):
        bad.append("%s: a heading is no date and subject" % name)
    if dates != sorted(dates, reverse=True):
        bad.append("%s: the newest entry is not the first" % name)
    for head, body in re.findall(r"^## (.+)\n((?:(?!## ).*\n?)*)", text, re.M):
        for what in ("Machine", "Commit", "Command", "Conclusion"):
            if "\n- %s: " % what not in "\n" + body[:3000]:
                bad.append("%s: entry '%s' has no line %s" % (name, head[:60], what))


def columns(name, text):
    """Tables, blocks of code and quoted texts may have longer lines."""
    for n, line in enumerate(prose(text).split("\n"), 1):
        if len(line) > COLUMNS and not line.startswith(("|", ">")):
            bad.append("%s:%d: %d columns (at most %d)" % (name, n, len(line), COLUMNS))


def sentences(name, text):
    """A sentence that is too long. Tables, headings and the commands of a log's entries are none."""
    text = re.sub(r"^(\||#|- (Machine|Commit|Command): ).*$", "", prose(text), flags=re.M)
    text = re.sub(r"`[^`]*`", "X", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        for sentence in re.split(r"(?<=[.:!?;])\s+", block):
            words = sentence.split()
            if len(words) > SENTENCE_WORDS:
                bad.append(
                    "%s: a sentence of %d words (at most %d): %s ..."
                    % (name, len(words), SENTENCE_WORDS, " ".join(words[:8]))
                )


def whole():
    """Of the source tree alone."""
    readme = read("README.md")
    if readme.count("\n") > README_LINES or len(readme.encode()) > README_BYTES:
        bad.append(
            "README.md: %d lines, %d bytes: at most %d and %d"
            % (readme.count("\n"), len(readme.encode()), README_LINES, README_BYTES)
        )
    protocol = read("docs/protocol.md")
    for message in re.findall(r"^message (\w+)", read("proto/ntx.proto"), re.M):
        if (
            message not in ("Peer", "Request", "Reply")
            and "`%s`" % message not in protocol
            and "`%ss`" % message not in protocol
            and "`%s`s" % message not in protocol
        ):
            bad.append("docs/protocol.md does not name message %s" % message)
    version = re.search(r"^project\(ntx VERSION ([\d.]+)", read("CMakeLists.txt"), re.M)[1]
    told = re.search(r"^## \[(\d[\d.]*)\]", read("CHANGELOG.md"), re.M)[1]
    if told != version:
        bad.append("CHANGELOG.md: the newest version is %s, CMakeLists.txt says %s" % (told, version))
    mentions = re.compile(r"(?<![\w/.])((?:docs|deploy|bench|tests)/[\w/-]+\.md|(?:MEASURED|OPERATING|LOG|TYPES)\.md)")
    tracked = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "*.py", "*.sh", "*CMakeLists.txt", "*.cmake", "*.conf"],
        capture_output=True,
        text=True,
    ).stdout
    for name in tracked.split():
        if name == "tests/style/docs_test.py" or not os.path.isfile(os.path.join(ROOT, name)):
            continue
        for path in mentions.findall(read(name)):
            if not os.path.exists(os.path.join(ROOT, path)):
                bad.append("%s mentions %s, which is no file" % (name, path))


def models():
    """docs/models.md has a whole row for each architecture, and one for each model that `ntx plan` knows by name."""
    text = read("docs/models.md")
    rows = [[c.strip() for c in line[1:-1].split("|")] for line in text.splitlines() if line.startswith("| ")]
    of_arch = {n: r for r in rows for n in re.findall(r"`([^`]+)`", r[0]) if len(r) == 6}
    predicted = {r[0]: r for r in rows if len(r) == 7}
    listed = re.search(r"define NTX_ARCHS\(X\)(.*?)\n\n", read("model/arch/arch_impl.h"), re.S)[1]
    for name in re.findall(r'X\(\w+, "([^"]+)"\)', listed):
        if not all(of_arch.get(name, [""])[:5]):
            bad.append("docs/models.md lacks a field of architecture %s" % name)
    folder = os.path.join(ROOT, "model/arch")
    for name in sorted(os.listdir(folder)):
        for model in re.findall(r'^    \{"([^"]+)", \d+, \d+,', read("model/arch/" + name), re.M):
            if not all(predicted.get(model, [""])):
                bad.append("docs/models.md lacks a field of model %s (bench/models.py prints them)" % model)


all_pages = pages()
led = {name: links(name, read(name)) for name in all_pages}
if not INSTALLED:
    for name in all_pages:
        columns(name, read(name))
        if not name.startswith("docs/log/") or name.endswith("README.md"):
            paths(name, read(name))
        else:
            log_form(name, read(name))
        if name.startswith("docs/") and name != "docs/http-fields.md":
            sentences(name, read(name))
    whole()
    models()
seen, todo = set(), ["README.md"]
while todo:
    name = todo.pop()
    if name not in seen and name in led:
        seen.add(name)
        todo += led[name]
bad.extend(
    "%s: nothing that begins at README.md leads to it" % name
    for name in all_pages
    if name.startswith("docs/") and name not in seen
)
if len(all_pages) < 10:
    bad.append("only %d pages were looked at" % len(all_pages))
print("\n".join(bad) or "%d pages: links, paths and forms hold" % len(all_pages))
sys.exit(bool(bad))
