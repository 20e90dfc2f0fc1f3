#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`run --trace` and `ntx trace`: valid JSON in Chrome's format, with every read, layer, pass and token of the run.

Slices of a track do not overlap; the sums in the trace are those of its events; recording costs under 1 %.
"""

import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ["NTX_SOURCE"], "tests", "lib"))
from daemons import BIN, Daemons, check, equal, make_model  # noqa: E402

NTX = os.path.join(BIN, "ntx")
SHAPE = ["--layers", "6", "--embd", "512", "--ff", "1536", "--heads", "8", "--kv", "2", "--type", "Q8_0", "--seed", "5"]
TOKENS = 24


def tracks(trace):
    """{(process, thread): [(begin, end, name, args)]} by name, sorted by time; slices of a track do not overlap."""
    named, slices = {}, {}
    for e in trace["traceEvents"]:
        if e["ph"] == "M":
            named[(e["name"], e["pid"], e["tid"])] = e["args"]["name"]
        else:
            equal(e["ph"], "X", "kind of event")
            slices.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"], e["name"], e["args"]))
    out = {}
    for (pid, tid), s in slices.items():
        s.sort()
        for a, b in zip(s, s[1:]):
            check(a[1] <= b[0] + 0.002, "slices overlap:", a, b)
        out[(named[("process_name", pid, 0)], named[("thread_name", pid, tid)])] = s
    return out


def union(slices):
    out = []
    for a, b, *_ in sorted(slices):
        if out and a <= out[-1][1]:
            out[-1][1] = max(out[-1][1], b)
        else:
            out.append([a, b])
    return out


def length(parts):
    return sum(b - a for a, b in parts) / 1e6


def minus(parts, holes):
    out = []
    for a, b in parts:
        for c, d in holes:
            if d > a and c < b:
                if c > a:
                    out.append([a, c])
                a = max(a, d)
        if b > a:
            out.append([a, b])
    return out


def both(x, y):
    return [[max(a, c), min(b, d)] for a, b in x for c, d in y if max(a, c) < min(b, d)]


def whole_run(tmp, model):
    path, stats_path = os.path.join(tmp, "t.json"), os.path.join(tmp, "stats")
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
            "12M",
            "--ctx",
            "64",
            "--link",
            "nvme=300M",
            "--trace",
            path,
            "--stats",
            stats_path,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    equal(p.returncode, 0, p.stderr)
    check("both at once" in p.stderr, "summary:", p.stderr)
    with open(path) as f, open(stats_path) as g:
        trace, stats = json.load(f), json.load(g)
    t, other = tracks(trace), trace["otherData"]
    equal(other["missed"], 0, "missed records")
    tokens = next(v for k, v in t.items() if k[1].endswith(": tokens"))
    equal([x[2] for x in tokens], ["token %d" % i for i in range(1, TOKENS + 1)], "tokens")
    check(abs((tokens[0][1] - tokens[0][0]) / 1e6 - stats["ttft_s"]) < 0.001, "the first token's frame is the TTFT")
    passes = t[("ntx-computed", "passes")]
    equal(len(passes), stats["passes"], "passes")
    equal(sum(x[3]["rows"] for x in passes), stats["prompt_tokens"] + TOKENS - 1, "rows")
    layers = t[("ntx-computed", "layers")]
    with_output = [x for x in layers if x[2] == "layer 6"]
    equal(len(layers) - len(with_output), 6 * len(passes), "layers")
    equal(len(with_output), TOKENS, "outputs")
    equal([x[2] for x in layers[-7:]], ["layer %d" % i for i in range(7)], "order of layers")
    reads = [x for k, v in t.items() if k[0].startswith("drive") for x in v]
    check(all(x[3]["bytes"] % 4096 == 0 or x[3]["bytes"] > 0 for x in reads), "bytes of reads")
    streamed = sum(x[3]["bytes"] for x in reads if x[2].startswith("chunk"))
    check(abs(streamed / stats["bytes_read"] - 1) < 0.2, "bytes of streamed chunks", streamed, stats["bytes_read"])
    slots = [v for k, v in t.items() if k[0] == "ring"]
    uses = [x for v in slots for x in v if x[2].startswith("use ")]
    per_pass = len({x[2] for x in uses})
    equal(len(uses), per_pass * len(passes), "each streamed chunk is used once a pass")
    for v in slots:
        names = [x[2].split()[0] for x in v]
        check("fill" in names and "use" in names, "a slot's life:", names[:6])
        check(all(b != "use" for a, b in zip(names, names[1:]) if a == "use"), "used twice without being filled")
    # the sums
    waits = union(t.get(("ntx-computed", "waits"), []))
    r, c = union(reads), minus(union(passes), waits)
    for name, want in (("reading_s", length(r)), ("computing_s", length(c)), ("both_s", length(both(r, c)))):
        check(abs(other[name] - want) < 0.001 + want * 0.02, name, other[name], "is not", want)
    check(
        other["both_s"] > 0.1 * min(other["reading_s"], other["computing_s"]),
        "reading and computing do not overlap:",
        other,
    )
    return other, passes


def live(tmp, model):
    path = os.path.join(tmp, "live.json")
    with Daemons() as d:
        env = {**os.environ, "NTX_RUNTIME": d.dir}
        c = d.client()
        c.load(model, ram_bytes=12 << 20, ctx=256, link_nvme_bps=100e6, skip="script:3")
        request = c.generate("Once upon a time", ignore_eos=True, max_tokens=200, temp=0.0)
        c.until(request, "token")
        p = subprocess.run(
            [NTX, "trace", "-o", path, "--seconds", "2"], env=env, capture_output=True, text=True, timeout=100
        )
        equal(p.returncode, 0, p.stderr)
        with open(path) as f:
            t = tracks(json.load(f))
        decisions = t[("ntx-computed", "decisions")]
        check(
            decisions and all(x[3]["layers_left_out"] == 1 and x[3]["rows"] == 1 for x in decisions),
            "decisions",
            decisions[:3],
        )
        check(
            not any(x[2] == "layer 3" for x in t[("ntx-computed", "layers")]),
            "layer 3 was skipped, and yet it is there",
        )
        check(any(k[1].startswith("session ") for k in t), "tokens")
        c.close()
        bad = subprocess.run(
            [NTX, "trace", "-o", "/nonexistent/x", "--seconds", "0.05"], env=env, capture_output=True, text=True
        )
        equal((bad.returncode, bad.stderr.count("\n")), (111, 1), "no such directory: " + bad.stderr)
    none = subprocess.run(
        [NTX, "trace", "-o", path], env={**os.environ, "NTX_RUNTIME": tmp}, capture_output=True, text=True
    )
    equal(none.returncode, 111, "no daemons")
    equal(subprocess.run([NTX, "trace"], capture_output=True).returncode, 100, "no -o")


def main():
    with tempfile.TemporaryDirectory(prefix="ntx-trace-") as tmp:
        os.environ["TMPDIR"] = tmp
        model = make_model(os.path.join(tmp, "m.gguf"), *SHAPE)
        other, passes = whole_run(tmp, model)
        live(tmp, model)
        print(
            "%d records; reading %.2f s, computing %.2f s, both %.2f s"
            % (other["records"], other["reading_s"], other["computing_s"], other["both_s"])
        )


main()
