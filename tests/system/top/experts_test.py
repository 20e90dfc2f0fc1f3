#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A streamed model with experts in the monitors.

What ntx-top (text and --json) and ntx-metrics report of cache hits and predictions agrees with the counters and with
itself. --trace-experts records the experts that each layer needed, as many as it uses; without it none are recorded.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, Daemons, check, equal, make_model  # noqa: E402

NTX = os.path.join(BIN, "ntx")
LAYERS, EXPERTS, USED, TOKENS = 5, 80, 3, 20
SHAPE = [
    "--arch",
    "qwen2moe",
    "--layers",
    str(LAYERS),
    "--embd",
    "256",
    "--heads",
    "8",
    "--kv",
    "2",
    "--experts",
    str(EXPERTS),
    "--experts-used",
    str(USED),
    "--expert-ff",
    "256",
    "--shared-ff",
    "256",
    "--type",
    "Q8_0",
    "--seed",
    "6",
]


def output(name, d, *options):
    p = subprocess.run(
        [os.path.join(BIN, name), "--runtime", d.dir, *options],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "160"},
    )
    equal(p.returncode, 0, name + ": " + p.stderr)
    return p.stdout


def watched(model):
    with Daemons() as d:
        c = d.client()
        c.load(model, ram_bytes=30 << 20, ctx=256)
        r = c.generate("Once upon a time", ignore_eos=True, max_tokens=60, temp=0.0)
        c.until(r, "done")
        j = json.loads(output("ntx-top", d, "--json", "--interval", "0.1"))
        n, e = j["counters"], j["experts"]
        check(n["comp_expert_hits"] > 0 and n["comp_expert_misses"] > 0, "hits and misses", n)
        equal((n["pred_probes"], n["comp_decisions"]), (0, 0), "no policy skips, so ntx-predictor is not asked")
        check(
            0 < n["comp_prefetch_right"] <= n["comp_prefetch_wanted"] < n["comp_expert_hits"] + n["comp_expert_misses"],
            "predictions",
            n,
        )
        check(
            0 < n["comp_prefetch_used_bytes"] <= n["comp_prefetch_bytes"] <= n["iod_bytes_demand"],
            "bytes of predictions",
            n,
        )
        check(0 < n["comp_prefetch_hits"] <= n["comp_prefetch_right"], "hits by predictions", n)
        check(n["iod_bytes_early"] <= n["iod_bytes_demand"], "early bytes", n)
        for name, part, whole in (
            ("hit_rate", n["comp_expert_hits"], n["comp_expert_hits"] + n["comp_expert_misses"]),
            ("prefetch_recall", n["comp_prefetch_right"], n["comp_prefetch_wanted"]),
            ("prefetch_hit_rate", n["comp_prefetch_used_bytes"], n["comp_prefetch_bytes"]),
        ):
            check(abs(e[name] - part / whole) < 1e-6, name, e[name], part, whole)
        text = output("ntx-top", d, "--once", "--interval", "0.1")
        m = re.search(
            r"experts +(\d+) % were there, in \d+ frames; predicted (\d+) %, (\d+) % of it read in vain", text
        )
        check(m, "no experts on the screen:", text)
        for shown, want in zip(m.groups(), (e["hit_rate"], e["prefetch_recall"], 1 - e["prefetch_hit_rate"])):
            check(abs(int(shown) - 100 * want) <= 0.51, "on the screen:", shown, want)
        metrics = dict(
            line.rsplit(" ", 1) for line in output("ntx-metrics", d).splitlines() if not line.startswith("#")
        )
        for name in (
            "expert_hits",
            "expert_misses",
            "prefetch_wanted",
            "prefetch_right",
            "prefetch_hits",
            "prefetch_bytes",
            "prefetch_used_bytes",
        ):
            equal(int(metrics["ntx_comp_%s_total" % name]), n["comp_" + name], "metric of " + name)
        c.close()


def traced(tmp, model, *options):
    path = os.path.join(tmp, "t.json")
    p = subprocess.run(
        [
            NTX,
            "run",
            model,
            "Once upon a time",
            "--raw",
            "--ignore-eos",
            "-n",
            str(TOKENS),
            "--ram",
            "30M",
            "--ctx",
            "64",
            "--rows",
            "1",
            "--trace",
            path,
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    equal(p.returncode, 0, p.stderr)
    with open(path) as f:
        trace = json.load(f)
    return path, [e["args"] for e in trace["traceEvents"] if e["name"] == "experts"], trace["otherData"]["missed"]


def replayed(tmp, path, wanted):
    out = os.path.join(tmp, "t.picks")
    subprocess.run(
        [
            sys.executable,
            os.path.join(os.environ["NTX_SOURCE"], "bench", "experts", "picks.py"),
            path,
            out,
            "--experts",
            str(EXPERTS),
        ],
        check=True,
    )
    with open(out) as f:
        lines = [[int(x) for x in line.split()] for line in f]
    equal(lines[0], [LAYERS, EXPERTS], "head of the recorded picks")
    equal([x[0] for x in lines[1:]], [l for _, l in sorted(wanted)], "order of layers")
    equal(sorted(e for x in lines[1:] for e in x[1:]), sorted(e for w in wanted.values() for e in w), "recorded picks")


def main():
    with tempfile.TemporaryDirectory(prefix="ntx-experts-") as tmp:
        os.environ["TMPDIR"] = tmp
        model = make_model(os.path.join(tmp, "m.gguf"), *SHAPE)
        watched(model)
        equal(traced(tmp, model)[1], [], "experts in a trace that was not to name them")
        path, events, missed = traced(tmp, model, "--trace-experts")
        equal(missed, 0, "missed records")
        wanted = {}
        for a in events:  # of up to 64 experts
            wanted.setdefault((a["pass"], a["layer"]), []).extend(a["experts"])
        passes = {p for p, _ in wanted}
        check(len(passes) >= TOKENS, "passes", len(passes))
        asked = {
            p for p, l in wanted if l == LAYERS - 1
        }  # of the prompt's passes the last one: the others end in the last layer's K and V
        equal((len(asked), asked), (TOKENS, set(sorted(passes)[-TOKENS:])), "passes that somebody asked for logits")
        equal(
            set(wanted),
            {(p, l) for p in passes for l in range(LAYERS) if l < LAYERS - 1 or p in asked},
            "passes and layers",
        )
        for key, w in wanted.items():  # a row at a time
            equal((len(w), len(set(w)), max(w) < EXPERTS), (USED, USED, True), "experts of %r" % (key,))
        replayed(tmp, path, wanted)


main()
