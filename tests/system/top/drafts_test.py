#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding (--draft) in the monitors.

ntx-top (text and --json), ntx-metrics and the counters report accepted drafts by drafter as the requests' statistics
do. A trace has each session's trees and the accepted path of each; --json writes the tokens of a pass at once.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, Deadline, check, equal, patience, wait_for  # noqa: E402

NTX = os.path.join(BIN, "ntx")
MODELS = os.path.join(os.environ["NTX_SOURCE"], "models")
DEMO, SMALL = os.path.join(MODELS, "demo.gguf"), os.path.join(MODELS, "demo-draft.gguf")
STORY = "Tom had a red ball. Tom had a red ball. Tom had a red ball. Tom had a"
TEXT = ["--raw", "--ignore-eos", "--temp", "0"]


def output(*command):
    p = subprocess.run(
        command, capture_output=True, text=True, timeout=100, env={**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "80"}
    )
    equal(p.returncode, 0, " ".join(command) + ": " + p.stderr)
    return p.stdout


def watched(tmp):
    """One request to its own daemons, so that all counters since the start belong to it."""
    stats = os.path.join(tmp, "s")
    os.environ["NTX_RUNTIME"] = os.path.join(tmp, "rt")
    os.environ["XDG_CACHE_HOME"] = os.path.join(tmp, "cache")
    with open(os.path.join(tmp, "up.log"), "w+") as log:
        up = subprocess.Popen(
            [NTX, "up", DEMO, "--ctx", "256", "--draft", "lookup," + SMALL, "--draft-nodes", "12"], stderr=log
        )
        try:
            wait_for(lambda: "ready" in open(log.name).read(), 20, "daemons")
            output(NTX, "generate", STORY, *TEXT, "-n", "80", "--quiet", "--stats", stats)
            with open(stats) as f:
                s = json.load(f)
            top = json.loads(output(os.path.join(BIN, "ntx-top"), "--json", "--interval", "0.1"))
            agree(s, top["drafts"], top["counters"])
            metrics = dict(
                x.rsplit(" ", 1) for x in output(os.path.join(BIN, "ntx-metrics")).splitlines() if x[0] != "#"
            )
            for name in ("draft_nodes", "draft_hits", "draft_hits_lookup", "draft_hits_file", "draft_passes"):
                equal(int(metrics["ntx_comp_%s_total" % name]), top["counters"]["comp_" + name], "metric of " + name)
            on_screen()
        finally:
            up.terminate()
            equal(up.wait(60 * patience()), 0, "ntx up")


def agree(s, drafts, n):
    for name in ("accepted_per_pass", "draft_nodes_per_pass", "draft_s"):
        check(abs(drafts[name] - s[name]) < 1e-6, name, drafts[name], "is not", s[name])
    equal(drafts["draft_hits"], s["draft_hits"], "hits by drafter")
    hits = s["draft_hits"]
    check(hits["lookup"] > 5 and hits["file"] > 5, "hits", hits)
    check(
        max(hits.values()) <= n["comp_draft_hits"] <= sum(hits.values()),
        "hits of one or both",
        n["comp_draft_hits"],
        hits,
    )
    equal(
        n["comp_draft_hits"] + n["comp_draft_passes"],
        79,
        "tokens behind the first: those that held, and one that each pass draws",
    )


def on_screen():
    """Looks at ntx-top while texts are written, until one look falls among their passes.

    The accepted drafts in its row are at most those that were tried.
    """
    row, end = None, Deadline(100)
    while not row and not end.over():
        p = subprocess.Popen([NTX, "generate", STORY, *TEXT, "-n", "200", "--quiet"], stdout=subprocess.DEVNULL)
        row = re.search(
            r"drafts .* ([\d.]+) of (\d+) a pass held: look-up ([\d.]+), file ([\d.]+); waited (\d+) %",
            output(os.path.join(BIN, "ntx-top"), "--once", "--interval", "0.2"),
        )
        equal(p.wait(60 * patience()), 0, "a longer text")
    check(row, "no row of drafts on the screen")
    held, tried, lookup, file, waited = map(float, row.groups())
    check(
        held <= tried <= 12 and max(lookup, file) <= held + 0.1 <= lookup + file + 0.3 and waited <= 100,
        "on the screen:",
        row[0],
    )


def traced(tmp):
    path, stats = os.path.join(tmp, "t.json"), os.path.join(tmp, "s")
    output(
        NTX,
        "run",
        DEMO,
        STORY,
        *TEXT,
        "-n",
        "60",
        "--quiet",
        "--ctx",
        "256",
        "--draft",
        "lookup",
        "--draft-nodes",
        "12",
        "--trace",
        path,
        "--stats",
        stats,
    )
    with open(path) as f, open(stats) as g:
        events, s = json.load(f)["traceEvents"], json.load(g)
    tracks = {
        (e["pid"], e["tid"])
        for e in events
        if e["ph"] == "M" and re.fullmatch(r"session \d+: drafts", e["args"]["name"])
    }
    equal(len(tracks), 1, "tracks of drafts")
    spans = sorted(
        (e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) in tracks),
        key=lambda e: (e["ts"], e["name"].startswith("computed")),
    )
    trees, paths = spans[::2], spans[1::2]
    check(len(trees) > 5, "trees", len(trees))
    for tree, way in zip(trees, paths, strict=True):
        n_drafts = int(re.fullmatch(r"(\d+) drafts", tree["name"])[1])
        nodes = way["args"]["nodes"]
        equal(way["name"], "computed: %d held" % len(nodes), "name of a path")
        equal(
            (len(nodes), tree["args"]["by_lookup"], tree["args"]["by_file"]),
            (tree["args"]["held"], tree["args"]["held"], 0),
            "nodes of a path",
        )
        check(
            nodes == sorted(set(nodes)) and all(1 <= n <= n_drafts <= 12 for n in nodes), "nodes", nodes, "of", n_drafts
        )
        check(abs(tree["ts"] + tree["dur"] - way["ts"]) < 0.01, "a path begins where its tree was taken")
    equal(sum(t["args"]["held"] for t in trees), s["draft_hits"]["lookup"], "hits in the trace")


def hidden(tmp):
    """A drafter's work has its own track, and the sums (what it did while passes ran) are those of its spans."""
    path = os.path.join(tmp, "h.json")
    p = subprocess.run(
        [
            NTX,
            "run",
            DEMO,
            STORY,
            *TEXT,
            "-n",
            "40",
            "--ctx",
            "256",
            "--ram",
            "16M",
            "--link",
            "nvme=60M",
            "--draft",
            SMALL,
            "--trace",
            path,
        ],
        capture_output=True,
        text=True,
        timeout=100,
    )
    equal(p.returncode, 0, p.stderr)
    with open(path) as f:
        t = json.load(f)
    names = {(e["name"], e["pid"], e["tid"]): e["args"]["name"] for e in t["traceEvents"] if e["ph"] == "M"}
    spans = {"drafter": [], "pass": []}
    for e in t["traceEvents"]:
        of = names.get(("process_name", e["pid"], 0)), names.get(("thread_name", e["pid"], e["tid"]))
        kind = {("ntx-predictor", "drafter 1"): "drafter", ("ntx-computed", "passes"): "pass"}.get(of)
        if e["ph"] == "X" and kind:
            spans[kind].append((e["ts"], e["ts"] + e["dur"], e["name"]))
    check(len(spans["drafter"]) > 5, "steps of the drafter", spans["drafter"])
    check(
        all(1 <= int(re.fullmatch(r"(\d+) rows", x[2])[1]) <= 256 for x in spans["drafter"]),
        "rows",
        spans["drafter"][:5],
    )
    other, work = t["otherData"], sum(b - a for a, b, _ in spans["drafter"]) / 1e6
    within = sum(max(0, min(b, d) - max(a, c)) for a, b, _ in spans["drafter"] for c, d, _ in spans["pass"]) / 1e6
    check(
        abs(other["drafting_s"] - work) < 1e-4 and abs(other["drafting_in_passes_s"] - within) < 1e-4,
        "sums:",
        other,
        "not",
        work,
        within,
    )
    check(0 < within <= work, "nothing was drafted while a pass ran:", other)
    check(
        "drafting %.2f s, %.0f %% of it while a pass ran" % (other["drafting_s"], 100 * within / work) in p.stderr,
        "said:",
        p.stderr,
    )


def streamed():
    """Each pass reads for 0.2 s: the tokens of one come together, those of the next later."""
    p = subprocess.Popen(
        [
            NTX,
            "run",
            DEMO,
            STORY,
            *TEXT,
            "-n",
            "40",
            "--quiet",
            "--ctx",
            "256",
            "--rows",
            "32",
            "--ram",
            "14M",
            "--link",
            "nvme=60M",
            "--draft",
            "lookup",
            "--draft-nodes",
            "12",
            "--json",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    came = []
    for line in p.stdout:
        if "token" in json.loads(line):
            came.append(time.monotonic())
    equal(p.wait(60 * patience()), 0, "--json")
    equal(len(came), 40, "tokens")
    gaps = [b - a for a, b in zip(came, came[1:])]
    check(
        sum(g < 0.02 for g in gaps) >= 8 and sum(g > 0.05 for g in gaps) >= 5,
        "tokens of a pass at once, passes apart:",
        ["%.3f" % g for g in gaps],
    )


def main():
    with tempfile.TemporaryDirectory(prefix="ntx-drafts-") as tmp:
        os.environ["TMPDIR"] = tmp
        watched(tmp)
        traced(tmp)
        hidden(tmp)
        streamed()


main()
