#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What sparse FFN costs and saves: all figures of docs/log/sparse.md, as CSV on standard output.

    bench/sparse/figures.py [--part relu,demo,moe,gap,wide,skip] [--what rates,quality] [--dir DIR] [--quick]

Needs nothing but the models of this repository and the generator of their corpus, which makes another text than the
scored one for `ntx calibrate`. DIR keeps what was packed, calibrated and measured, for parts that are run one by one
(default: a directory that is removed).

relu, demo: models/demo-relu.gguf and models/demo.gguf, packed with the gate matrix apart (P), ordered by co-activation
(O), and with gate rows in the groups (G). Modes skip 0 to 90 % of neurons, or of groups. Memory: the smallest budget
that is accepted, so nearly all is read for each token. `wanted`: bytes of attention and all else that is scheduled (as
read with a threshold that no neuron reaches, or with one group per layer), plus the used groups' share of what is read
with all of them; `off`: the difference of the bytes read from that. Rates on the drive emulated at --link, and on the
real one; `of profile`: share of the profile's rate for reads of that mean size. Perplexity and KL of the first --bytes
of models/held-out.txt, answers to --questions questions of models/held-out.jsonl.

moe: models/demo-moe.gguf, whose router uses 2 of 8 experts, with budgets from the smallest on.

gap: bytes between wanted groups are read with them if they are fewer than half of the bytes that cost as much as a read
by the profile; with that limit, none, twice and four times it, on the real drive.

wide: a random model of width 4096, Q8_0, 8 layers, with groups of 5 neurons with their gate rows (64 KiB); as it is
and, packed, with 90 % skipped, on both drives.

skip: demo-relu with layer skip, with skipped groups, and with both.

Rates are medians of --repeat runs, the modes in turn. Takes about 15 minutes; use a quiet machine.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
BIN = os.environ.get("NTX_BIN", os.path.join(ROOT, "build", "bin"))
SHARES = [1, 0.9, 0.75, 0.5, 0.25, 0.1]
NOTHING = "threshold=1e30"


def ntx(*args, check=True, env=None):
    p = subprocess.run([os.path.join(BIN, "ntx"), *map(str, args)], capture_output=True, text=True, env=env)
    if p.returncode and check:
        sys.exit(f"ntx {' '.join(map(str, args))}: {p.stderr.strip()}")
    return p.stdout if not p.returncode else p.stderr


def line(*values):
    print(",".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in values), flush=True)


def smallest(model, ctx, *options):
    """Bytes of the smallest budget that will do."""
    said = ntx("run", model, "x", "-n", 2, "--quiet", "--ram", "1M", "--ctx", ctx, *options, check=False)
    return int(re.search(r"\((\d+) bytes\)", said).group(1))


def run(a, model, *options, n=None, env=None):
    with tempfile.NamedTemporaryFile() as f:
        ntx(
            "run",
            model,
            "Once upon a time, a quiet girl named Lily lived by the garden.",
            "--raw",
            "-n",
            n or a.n,
            "--ignore-eos",
            "--temp",
            0,
            "--ctx",
            a.ctx,
            "--quiet",
            "--stats",
            f.name,
            *options,
            env=env,
        )
        return json.load(open(f.name))


def in_turn(a, name, jobs):
    """jobs: key -> arguments of run(). The runs of each key, in --repeat turns back and forth.

    Each run is kept in DIR, so that a run of this program that was interrupted can continue.
    """
    path = os.path.join(a.dir, name + ".runs.json")
    done = json.load(open(path)) if os.path.exists(path) else {}
    for turn in range(a.repeat):
        for k in list(jobs)[:: 1 if turn % 2 == 0 else -1]:
            runs = done.setdefault(" ".join(map(str, k)), [])
            if len(runs) > turn:
                continue
            runs.append(run(a, *jobs[k][0], **jobs[k][1]))
            with open(path, "w") as f:
                json.dump(done, f)
    return {k: done[" ".join(map(str, k))] for k in jobs}


def median(runs, key="decode_tok_s"):
    return statistics.median(r[key] for r in runs)


def made(a, name, *command):
    """A file of DIR, made by an ntx command that ends in its name."""
    path = os.path.join(a.dir, name)
    if not os.path.exists(path):
        ntx(*command, path)
    return path


def texts(a):
    text = os.path.join(a.dir, "calibration.txt")
    if not os.path.exists(text):
        subprocess.run(
            [
                sys.executable,
                os.path.join(ROOT, "models/train/corpus.py"),
                "--seed",
                "300",
                "--docs",
                "300",
                "--out",
                text,
            ],
            check=True,
        )
    scored = os.path.join(a.dir, "scored.txt")
    with open(os.path.join(ROOT, "models/held-out.txt")) as f, open(scored, "w") as g:
        g.write(f.read()[: a.bytes])
    return text, scored


def calibrated(a, model, name):
    sidecar = os.path.join(a.dir, name + ".skip.gguf")
    report = sidecar + ".json"
    if not os.path.exists(sidecar):
        said = ntx(
            "calibrate",
            "--force",
            model,
            "--text",
            texts(a)[0],
            "--ffn",
            "--ffn-rank",
            a.rank,
            "--limit",
            a.tokens,
            "--epochs",
            a.epochs,
            "--threads",
            a.threads,
            "--json",
            "--quiet",
            "-o",
            sidecar,
        )
        open(report, "w").write(said)
    return sidecar, json.load(open(report))["ffn"]


def packed(a, model, name):
    """{"P", "O", "G"}: files."""
    order, study = calibrated(a, model, name)
    f = {
        "P": made(a, name + ".p.gguf", "pack", "--group", "4K", "--force", "--quiet", model),
        "O": made(a, name + ".o.gguf", "pack", "--group", "4K", "--order", order, "--force", "--quiet", model),
        "G": made(a, name + ".g.gguf", "pack", "--group", "12K", "--gate-in-bundle", "--force", "--quiet", model),
    }
    line("# order", name, "share of groups of 4 / 8 / 16 neurons used on held-out text: as they are, ordered")
    line(
        "# order",
        name,
        *(statistics.mean(s["groups_before"][i] for s in study) for i in range(3)),
        *(statistics.mean(s["groups_after"][i] for s in study) for i in range(3)),
    )
    for k in ("P", "G"):
        _, s = calibrated(a, f[k], f"{name}.{k.lower()}")
        line(
            "# predictor",
            name,
            k,
            *(
                f"{key} {statistics.mean(x[key] for x in s):.3f}"
                for key in ("active", "predicted", "precision", "recall", "top")
            ),
        )
    return f


def modes():
    m = [("P", "off"), ("P", "threshold=0"), ("O", "threshold=0")]
    m += [(f, f"topk={s}") for f in "PO" for s in SHARES[1:]]
    m += [("P", f"predicted={s}") for s in SHARES[1:]] + [("P", f"predicted={s},learned") for s in SHARES[1:]]
    m += (
        [("G", "off")]
        + [("G", f"predicted={s}") for s in SHARES[1:]]
        + [("G", "predicted")]
        + [("G", f"prompt={s}") for s in SHARES[1:]]
    )
    return m


def quality(a, model, mode, base, first):
    r = json.loads(
        ntx(
            "perplexity",
            model,
            texts(a)[1],
            "--ctx",
            a.ctx,
            "--ffn-sparse",
            mode,
            "--json",
            "--quiet",
            "--save-logits" if first else "--kl",
            base,
        ).splitlines()[-1]
    )
    e = json.loads(
        ntx("eval", model, "--questions", a.asked, "--ffn-sparse", mode, "--json", "--quiet").splitlines()[-1]
    )
    return [r["perplexity"], r.get("kl_mean", 0.0), r.get("top1_agreement", 1.0), e["accuracy"]]


def of_profile(s, reads):
    """The share of the profile's rate for reads of this mean size.

    Between the profile's entries it is interpolated by the logarithm of the size.
    """
    import math

    size = s["bytes_read_per_token"] / max(s["reads_per_token"], 1)
    if not reads:
        return ""
    below = [r for r in reads if r["bytes"] <= size] or reads[:1]
    above = [r for r in reads if r["bytes"] > size] or reads[-1:]
    lo, hi = below[-1], above[0]
    t = 0 if lo["bytes"] == hi["bytes"] else math.log(size / lo["bytes"]) / math.log(hi["bytes"] / lo["bytes"])
    rate = (lo["gb_s"] + max(min(t, 1), 0) * (hi["gb_s"] - lo["gb_s"])) * 1e9
    return s["bytes_read_per_token"] * s["decode_tok_s"] / rate


def profile():
    p = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "ntx/profile.json")
    return json.load(open(p)) if os.path.exists(p) else {"drive": {"reads": []}}


def family(f, m):
    """Modes that share a plan, and of which two say what it reads at least and at most."""
    kind, how = m.split("=")[0], ",learned" if "learned" in m else ""
    return (
        (f, "prompt=1e-6", "prompt=1")
        if kind == "prompt"
        else (
            (f, "predicted=1e-6" + how, "predicted=1" + how) if kind.startswith("predicted") else (f, NOTHING, "topk=1")
        )
    )


def rates(a, name, files, every):
    ram = {
        f: max(smallest(files[f], a.ctx, *(() if m == "off" else ("--ffn-sparse", m))) for g, m in every if g == f)
        for f in files
    }
    link = ["--link", "nvme=" + a.link]
    ends = in_turn(
        a,
        name + ".ends",
        {
            (k[0], m): ((files[k[0]], "--ram", ram[k[0]], *link, "--ffn-sparse", m), {"n": 6})
            for k in {family(f, m) for f, m in every if m != "off"}
            for m in k[1:]
        },
    )
    jobs = {
        (f, m, slow): (
            (files[f], "--ram", ram[f], "--ffn-sparse", m, *(link if slow else [])),
            {"n": a.n if slow else 4 * a.n},
        )
        for f, m in every
        for slow in (True, False)
        if ("emulated" if slow else "real") in a.drives
    }
    runs = in_turn(a, name, jobs)
    out = {}
    for f, m in every:
        slow, real = runs.get((f, m, True)), runs.get((f, m, False))
        s, r = (slow or real)[-1], (real or slow)[-1]
        groups, wanted = s.get("active_groups", 1.0), s["bytes_read_per_token"]
        if m != "off":
            none, all_of_them = (ends[f, e][-1] for e in family(f, m)[1:])
            least, g0 = none["bytes_read_per_token"], none["active_groups"]
            wanted = least + (all_of_them["bytes_read_per_token"] - least) * (groups - g0) / (1 - g0)
        rate = median(real) if real else ""
        out[f"{f} {m}"] = [
            s.get("active_neurons", 1.0),
            groups,
            s["bytes_read_per_token"],
            wanted,
            s["bytes_read_per_token"] / wanted - 1,
            r["bytes_read_per_token"],
            r["reads_per_token"],
            median(slow) if slow else "",
            rate,
            of_profile({**r, "decode_tok_s": rate}, profile()["drive"]["reads"]) if real else "",
            s.get("ffn_precision", ""),
            s.get("ffn_recall", ""),
        ]
    return out


def sparse_table(a, name, model):
    files, every = packed(a, model, name), [x for x in modes() if re.search(a.only, " ".join(x))]
    found = {"rates": {}, "quality": {}}
    if "rates" in a.what:
        found["rates"] = rates(a, name, files, every)
    if "quality" in a.what:
        base = os.path.join(a.dir, name + ".base")
        path = os.path.join(a.dir, name + ".quality.json")
        found["quality"] = json.load(open(path)) if os.path.exists(path) else {}
        for f, m in every:
            if f"{f} {m}" in found["quality"]:
                continue
            if time.monotonic() > a.until:
                return line("# not finished: run again")
            found["quality"][f"{f} {m}"] = quality(a, files[f], m, base, not found["quality"])
            with open(path, "w") as out:
                json.dump(found["quality"], out)
    line(
        "model",
        "file mode",
        "neurons",
        "groups",
        "read_per_token",
        "wanted",
        "off",
        "read_real",
        "reads_real",
        "tok_s_emulated",
        "tok_s_real",
        "of_profile",
        "precision",
        "recall",
        "perplexity",
        "kl",
        "top1",
        "accuracy",
    )
    for f, m in every:
        k = f"{f} {m}"
        line(name, k, *found["rates"].get(k, [""] * 12), *found["quality"].get(k, [""] * 4))


def bits(a, name, model):
    """threshold=0 against all neurons of the same file: logits, in RAM and from the drive."""
    p = packed(a, model, name)["P"]
    out = []
    for k, options in enumerate(
        (
            ["--ffn-sparse", "off"],
            ["--ffn-sparse", "threshold=0"],
            ["--ffn-sparse", "threshold=0", "--ram", smallest(p, 64, "--ffn-sparse", "threshold=0")],
            [
                "--ffn-sparse",
                "threshold=0",
                "--prefetch",
                "off",
                "--ram",
                smallest(p, 64, "--ffn-sparse", "threshold=0"),
            ],
        )
    ):
        path = os.path.join(a.dir, f"logits{k}")
        ntx(
            "logits",
            p,
            "--tokens",
            "1,259,306,337,326,328,514,357,477,421,371,508,436,330,300",
            "-o",
            path,
            "--ctx",
            64,
            *options,
        )
        out.append(open(path, "rb").read())
    line(
        "# bits",
        name,
        "threshold=0 and off, in RAM, streamed, streamed without read-ahead:",
        "the same" if all(o == out[0] for o in out) else "DIFFERENT",
    )


def relu(a):
    bits(a, "relu", os.path.join(ROOT, "models/demo-relu.gguf"))
    sparse_table(a, "relu", os.path.join(ROOT, "models/demo-relu.gguf"))


def demo(a):
    sparse_table(a, "demo", os.path.join(ROOT, "models/demo.gguf"))


def moe(a):
    model = os.path.join(ROOT, "models/demo-moe.gguf")
    least, size = smallest(model, a.ctx), os.path.getsize(model)
    budgets = {"smallest": least + 65536, "half": (least + size) // 2, "three quarters": (least + 3 * size) // 4}
    jobs = {
        (b, link): (
            (model, "--ram", ram, *(["--link", "nvme=" + a.link] if link else [])),
            {"n": a.n if link else 4 * a.n},
        )
        for b, ram in budgets.items()
        for link in (True, False)
    }
    runs = in_turn(a, "moe", jobs)
    e = json.loads(ntx("eval", model, "--questions", a.asked, "--json", "--quiet").splitlines()[-1])
    r = json.loads(ntx("perplexity", model, texts(a)[1], "--ctx", a.ctx, "--json", "--quiet").splitlines()[-1])
    line(
        "model",
        "budget",
        "hit_rate",
        "read_per_token",
        "tok_s_emulated",
        "tok_s_real",
        "recall",
        "read_on_predictions_used",
        "perplexity",
        "accuracy",
    )
    for b in budgets:
        s = runs[b, True][-1]
        line(
            "demo-moe",
            b,
            s.get("expert_hit_rate", 1.0),
            s["bytes_read_per_token"],
            median(runs[b, True]),
            median(runs[b, False]),
            s.get("prefetch_recall", ""),
            s.get("prefetch_hit_rate", ""),
            r["perplexity"],
            e["accuracy"],
        )


def with_gap(a, factor):
    """An environment whose profile has another cost of a read."""
    home = os.path.join(a.dir, f"gap{factor}")
    os.makedirs(os.path.join(home, "ntx"), exist_ok=True)
    p = profile()
    reads = p["drive"]["reads"]
    best, first = max(r["gb_s"] for r in reads), reads[0]
    cost = first["bytes"] / first["gb_s"] - first["bytes"] / best
    first["gb_s"] = first["bytes"] / (first["bytes"] / best + factor * cost)
    json.dump(p, open(os.path.join(home, "ntx/profile.json"), "w"))
    return {**os.environ, "XDG_CACHE_HOME": home}, factor * cost * best / 2


def gap(a):
    if not profile()["drive"]["reads"]:
        line("# gap: no profile; make one with ntx doctor")
        return
    files = {
        "relu P": (packed(a, os.path.join(ROOT, "models/demo-relu.gguf"), "relu")["P"], "topk=0.1"),
        "wide G": (wide_file(a, "relu")[1], "prompt=0.1"),
    }
    ram = {f: smallest(files[f][0], a.ctx, "--ffn-sparse", files[f][1]) for f in files}
    ram["wide G"] += 390 << 20  # attention stays
    envs = {k: with_gap(a, k) for k in (0, 1, 2, 4)}
    runs = in_turn(
        a,
        "gap",
        {
            (f, k): (
                (files[f][0], "--ram", ram[f], "--ffn-sparse", files[f][1]),
                {"env": envs[k][0], "n": 4 * a.n if f[0] == "r" else a.n},
            )
            for f in files
            for k in envs
        },
    )
    line("file", "gap of profile times", "gap", "read_per_token", "between_per_token", "reads_per_token", "tok_s_real")
    for (f, k), r in runs.items():
        line(
            f,
            k,
            envs[k][1],
            r[-1]["bytes_read_per_token"],
            r[-1]["ffn_bytes_between_per_token"],
            r[-1]["reads_per_token"],
            median(r),
        )


def wide_file(a, kind):
    model = os.path.join(a.dir, f"wide-{kind}.gguf")
    if not os.path.exists(model):
        subprocess.run(
            [
                os.path.join(BIN, "ntx-mkmodel"),
                "--arch",
                "llama-relu" if kind == "relu" else "llama",
                "--layers",
                "8",
                "--embd",
                "4096",
                "--ff",
                "11008",
                "--heads",
                "32",
                "--kv",
                "8",
                "--type",
                "Q8_0",
                "--vocab-size",
                "4000",
                "--seed",
                "5",
                model,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    return model, made(
        a, f"wide-{kind}.g.gguf", "pack", "--group", "64K", "--gate-in-bundle", "--force", "--quiet", model
    )


def wide(a):
    model, g = wide_file(a, "relu")
    text = texts(a)[0]
    sidecar = os.path.join(a.dir, "wide-relu.g.skip.gguf")
    if not os.path.exists(sidecar):
        ntx(
            "calibrate",
            "--force",
            g,
            "--text",
            text,
            "--ffn",
            "--ffn-rank",
            64,
            "--limit",
            400,
            "--ctx",
            200,
            "--epochs",
            2,
            "--first",
            1,
            "--last",
            1,
            "--quiet",
            "-o",
            sidecar,
        )
    small = max(smallest(g, a.ctx, "--ffn-sparse", "predicted=0.1", "--sidecar", sidecar), smallest(model, a.ctx)) + (
        8 << 20
    )
    line(
        "memory",
        "file",
        "mode",
        "drive",
        "groups",
        "read_per_token",
        "reads_per_token",
        "between_per_token",
        "tok_s",
        "times dense",
        "of_profile",
        "precision",
        "recall",
    )
    for memory in a.memory.split(","):
        ram = small + ({"least": 0, "attention": 390}[memory] << 20)
        jobs = {}
        for link in (x == "emulated" for x in a.drives.split(",")):
            for f, m in ((model, "off"), (g, "prompt=0.1"), (g, "predicted=0.1")):
                jobs[link, f, m] = (
                    (f, "--ram", ram, "--ffn-sparse", m, *(["--link", "nvme=3.3G"] if link else [])),
                    {"n": a.n},
                )
        runs = in_turn(a, "wide-" + memory, jobs)
        for (link, f, m), r in runs.items():
            s, dense = r[-1], median(runs[link, model, "off"])
            line(
                memory,
                os.path.basename(f),
                m,
                "3.3 GB/s" if link else "real",
                s.get("active_groups", 1.0),
                s["bytes_read_per_token"],
                s["reads_per_token"],
                s.get("ffn_bytes_between_per_token", 0.0),
                median(r),
                median(r) / dense,
                of_profile({**s, "decode_tok_s": median(r)}, profile()["drive"]["reads"]),
                s.get("ffn_precision", ""),
                s.get("ffn_recall", ""),
            )


def skip(a):
    files = packed(a, os.path.join(ROOT, "models/demo-relu.gguf"), "relu")
    f, sidecar = files["G"], calibrated(a, files["G"], "relu.g")[0]
    ram = max(smallest(f, a.ctx, "--ffn-sparse", "predicted=0.5", "--sidecar", sidecar), smallest(f, a.ctx))
    common = ["--sidecar", sidecar, "--ram", ram, "--ring", 4, "--chunk", "256K"]
    skips = {
        "no layer": ["--skip", "script:1@4000000"],
        "a third, by chance": ["--skip", "random:0.333,1-10,7", "--skip-kv", "hole"],
        "predictive": ["--skip", "predictive", "--skip-threshold", "0.5", "--skip-kv", "hole"],
    }
    ffns = {
        "off": [],
        "predicted=0.5": ["--ffn-sparse", "predicted=0.5"],
        "predicted=0.25": ["--ffn-sparse", "predicted=0.25"],
    }
    jobs = {
        (x, y): (
            (
                f,
                *(common if y != "off" or x == "predictive" else common[2:]),
                *skips[x],
                *ffns[y],
                "--link",
                "nvme=" + a.link,
            ),
            {},
        )
        for x in skips
        for y in ffns
    }
    runs = in_turn(a, "skip", jobs)
    base = os.path.join(a.dir, "skip.base")
    line(
        "skip",
        "ffn",
        "layers_skipped",
        "groups",
        "read_per_token",
        "of all",
        "product of both alone",
        "tok_s_emulated",
        "times",
        "perplexity",
        "kl",
    )
    whole = runs["no layer", "off"]
    for (x, y), r in runs.items():
        s = r[-1]
        alone = (
            runs[x, "off"][-1]["bytes_read_per_token"]
            * runs["no layer", y][-1]["bytes_read_per_token"]
            / whole[-1]["bytes_read_per_token"] ** 2
        )
        q = json.loads(
            ntx(
                "perplexity",
                f,
                texts(a)[1],
                "--ctx",
                a.ctx,
                "--json",
                "--quiet",
                *(["--sidecar", sidecar] if y != "off" or x == "predictive" else []),
                *skips[x],
                *ffns[y],
                "--save-logits" if r is whole else "--kl",
                base,
            ).splitlines()[-1]
        )
        line(
            x,
            y,
            s["skipped_layers_per_token"],
            s.get("active_groups", 1.0),
            s["bytes_read_per_token"],
            s["bytes_read_per_token"] / whole[-1]["bytes_read_per_token"],
            alone,
            median(r),
            median(r) / median(whole),
            q["perplexity"],
            q.get("kl_mean", 0.0),
        )


PARTS = {"relu": relu, "demo": demo, "moe": moe, "gap": gap, "wide": wide, "skip": skip}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--part", default=",".join(PARTS))
    p.add_argument("--dir")
    p.add_argument(
        "--seconds", type=float, default=1e9, help="of quality: then the rest is left for another run with the same DIR"
    )
    p.add_argument(
        "--what", default="rates,quality", help="of relu and demo: rates want a machine at rest, quality does not"
    )
    p.add_argument("--quick", action="store_true", help="everything once and small: to see that it works")
    p.add_argument(
        "--only", default="", help="of relu and demo, files and modes that this regular expression finds: 'P threshold'"
    )
    p.add_argument("--drives", default="emulated,real")
    p.add_argument(
        "--memory",
        default="least,attention",
        help="of wide, what stays of the packed model: next to nothing, or attention",
    )
    p.add_argument("--link", default="132M", help="of the small models: 3.3 GB/s by 25")
    p.add_argument("--ctx", type=int, default=256)
    p.add_argument("-n", type=int, default=16)
    p.add_argument("--repeat", type=int, default=3)
    p.add_argument("--bytes", type=int, default=8000)
    p.add_argument("--questions", type=int, default=60)
    p.add_argument("--rank", type=int, default=128)
    p.add_argument("--tokens", type=int, default=8000)
    p.add_argument("--threads", type=int, default=2, help="of the calibration")
    p.add_argument("--epochs", type=int, default=10)
    a = p.parse_args()
    a.until = time.monotonic() + a.seconds
    if a.quick:
        a.repeat, a.bytes, a.questions, a.tokens, a.epochs, a.n = 1, 3000, 5, 1500, 1, 6
    temporary = None if a.dir else tempfile.TemporaryDirectory()
    a.dir = a.dir or temporary.name
    os.makedirs(a.dir, exist_ok=True)
    a.asked = os.path.join(a.dir, "questions.jsonl")
    with open(os.path.join(ROOT, "models/held-out.jsonl")) as f, open(a.asked, "w") as g:
        g.writelines(f.readlines()[: a.questions])
    for part in a.part.split(","):
        line("# part", part)
        PARTS[part](a)
    if temporary:
        temporary.cleanup()


if __name__ == "__main__":
    main()
