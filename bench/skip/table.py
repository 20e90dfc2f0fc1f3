#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What layer skip costs and saves on one model: off, static, predictive and random skipping. CSV.

    bench/skip/table.py [MODEL] [--thresholds 0.95,0.9,...] [--options-at 0.9,0.7,0.4] [--part quality,streamed]
                        [--only POLICY,...] [--dir DIR] [--quick]

Needs nothing but the model (default models/demo.gguf) and the generator of its corpus: `ntx calibrate` gets another
text than the scored one, and questions whose answers have several words are made with it (a prompt never skips, so
neither does an answer's first token). Policies:

  static by cosine     the layers that most often change their input least, as calibrated
  static by KL         layers chosen one by one for the least KL on the other text
  predictive           by threshold; at the thresholds of --options-at also with --skip-adapt, with --skip-verify 16 and
                       with holes in KV; and there also random, with as many layers

Quality is measured in RAM: `ntx perplexity` over windows of 256 whose scored half is fed token by token, and `ntx
eval`. At the end predictive's KL is compared with the others' at equal bytes, interpolated between thresholds.

Streamed means at most one layer in flight (a ring of 4 chunks of 256 KiB), over the first windows of the same text,
from a drive emulated at --link and from the real one. That part fails if the bytes per token differ by more than 2 %
from those of the remaining layers (K and V of propagated ones included; of each layer the share that is not resident)
and the wasted ones. Static skipping leaves holes in KV: since no token ever reads a layer that none computes, they
change no output and save bytes.

DIR keeps what was calibrated and chosen, for parts that are run one by one.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
NTX = os.path.join(os.environ.get("NTX_BIN", "build/bin"), "ntx")
STREAM = ["--ram", "10M", "--ring", "4", "--chunk", "256K"]
KV = re.compile(r"attn_[kv]\.|attn_norm\.")
OFF = ["--skip", "script:1@4000000"]  # token by token like the others, and never skipping


def run(*args):
    p = subprocess.run([NTX, *args, "--json"], capture_output=True, text=True)
    if p.returncode:
        sys.exit(f"{' '.join(args)}: {p.stderr.strip()}")
    return json.loads(p.stdout)


def say(*columns):
    print(
        ",".join(
            f"{c:.5g}" if isinstance(c, float) and c < 1e6 else f"{c:.0f}" if isinstance(c, float) else str(c)
            for c in columns
        ),
        flush=True,
    )


class Bench:
    def __init__(self, a, directory):
        self.a, self.dir = a, directory
        for name in ("text", "short", "learn", "choose", "questions"):
            setattr(self, name, self.path(name))
        self.sidecar = self.path("skip.gguf")
        self.make_texts()
        self.bytes, self.layer_bytes, self.kv_bytes = self.sizes()
        c = self.kept("calibrated", self.calibrate)
        self.first, self.last, self.threshold = c["first"], c["last"], c["threshold"]
        self.rate = {l["layer"]: l["alike"] for l in c["layers"] if "alike" in l}
        self.by_kl = self.kept("by_kl", self.static_by_kl)

    def path(self, name):
        return os.path.join(self.dir, name)

    def kept(self, name, make):
        path = self.path(name + ".json")
        if not os.path.exists(path):
            made = make()
            with open(path, "w") as f:
                json.dump(made, f)
        with open(path) as f:
            return json.load(f)

    def make_texts(self):
        asked = self.path("asked")
        subprocess.run(
            [
                sys.executable,
                os.path.join(HERE, "../../models/train/corpus.py"),
                "--seed",
                "211",
                "--docs",
                str(4 * self.a.n_questions + 60),
                "--held",
                "--out",
                self.learn,
                "--questions",
                asked,
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        with open(asked) as f:
            several = [q for q in f if " " in json.loads(q)["answer"]]
        with open(self.questions, "w") as f:
            f.writelines(several[: self.a.n_questions])
        for path, source, n in (
            (self.text, self.a.text, self.a.bytes),
            (self.short, self.a.text, self.a.streamed_bytes),
            (self.choose, self.learn, 4000),
        ):
            with open(source, "rb") as f, open(path, "wb") as g:
                g.write(f.read(n))

    def calibrate(self):
        return run(
            "calibrate",
            "--force",
            self.a.model,
            "--text",
            self.learn,
            "-o",
            self.sidecar,
            "--limit",
            str(self.a.limit),
            "--epochs",
            str(self.a.epochs),
        )

    def sizes(self):
        """Bytes of all weights, of a layer, and those of the latter that a propagated one still reads."""
        every = {t["name"]: t["bytes"] for t in run("inspect", self.a.model)["tensors"]}
        layer = {name: n for name, n in every.items() if name.startswith("blk.1.")}
        return sum(every.values()), sum(layer.values()), sum(n for name, n in layer.items() if KV.search(name))

    def perplexity(self, text, skip, save=False, extra=()):
        return run(
            "perplexity",
            self.a.model,
            text,
            "--ctx",
            "256",
            "--save-logits" if save else "--kl",
            text + ".base",
            *skip,
            *extra,
        )

    def static_by_cosine(self, n):
        return sorted(sorted(self.rate, key=self.rate.get, reverse=True)[:n])

    def static_by_kl(self):
        """Sets of 1, 2, ... layers, each the one before and the layer that adds the least KL."""
        self.perplexity(self.choose, OFF, True)
        sets = [[]]
        for _ in range(self.a.most_static):
            rest = [l for l in range(self.first, self.last + 1) if l not in sets[-1]]
            kl = {l: self.perplexity(self.choose, script(sets[-1] + [l]))["kl_mean"] for l in rest}
            sets.append(sets[-1] + [min(kl, key=kl.get)])
        return [sorted(s) for s in sets[1:]]

    def predictive(self, threshold, *more):
        return ["--skip", "predictive", "--sidecar", self.sidecar, "--skip-threshold", threshold, *more]

    def random(self, threshold, layers):
        """As many layers as the predictive policy skipped."""
        if threshold not in layers:
            layers[threshold] = self.perplexity(self.text, self.predictive(threshold))["skipped_layers_per_token"]
        share = layers[threshold] / (self.last - self.first + 1)
        return ["--skip", f"random:{share:.6f},{self.first}-{self.last}", "--skip-kv", "propagate"]

    def gone(self, skip):
        """Bytes that a skipped layer does not cost."""
        return self.layer_bytes - (0 if skip[1].startswith("script") or "hole" in skip else self.kv_bytes)


def script(layers):
    return ["--skip", "script:" + ",".join(map(str, layers))]


def policies(b):
    """Name, setting and options of each, as a generator: a random one's follow from the predictive one before it."""
    a, layers = b.a, {}
    yield "off", "", OFF
    for n in range(1, a.most_static + 1):
        yield "static by cosine", " ".join(map(str, b.static_by_cosine(n))), script(b.static_by_cosine(n))
    for chosen in b.by_kl[: a.most_static]:
        yield "static by KL", " ".join(map(str, chosen)), script(chosen)
    for t in a.thresholds.split(","):
        yield "predictive", t, b.predictive(t)
        if t in a.options_at.split(","):
            yield "predictive adapt", t, b.predictive(t, "--skip-adapt")
            yield "predictive verify", t, b.predictive(t, "--skip-verify", "16")
            yield "predictive holes", t, b.predictive(t, "--skip-kv", "hole")
            if not a.only or "random" in a.only.split(","):
                yield "random", "as at " + t, b.random(t, layers)
    yield "off", "again", OFF


def chosen(b):
    return (
        (name, setting, skip)
        for name, setting, skip in policies(b)
        if not b.a.only or name in b.a.only.split(",") or name == "off"
    )


def quality(b):
    say("policy", "setting", "layers", "saved", "perplexity", "kl", "top1", "answers")
    points = {}
    for name, setting, skip in chosen(b):
        r = b.perplexity(b.text, skip, (name, setting) == ("off", ""))
        layers, kl = r["skipped_layers_per_token"], r.get("kl_mean", 0.0)
        saved = layers * b.gone(skip) / b.layer_bytes
        say(
            name,
            setting,
            layers,
            saved,
            r["perplexity"],
            kl,
            r.get("top1_agreement", 1.0),
            run("eval", b.a.model, "--questions", b.questions, *skip)["correct"],
        )
        points.setdefault(name, []).append((saved, kl))
    compare(points)


def at(points, x):
    """Between the points on either side; None beyond them."""
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 <= x <= x1:
            return y0 + (y1 - y0) * (x - x0) / (x1 - x0 or 1)
    return None


def compare(points):
    curve = sorted([(0.0, 0.0), *points.get("predictive", [])])
    for name in (
        "static by cosine",
        "static by KL",
        "random",
        "predictive adapt",
        "predictive verify",
        "predictive holes",
    ):
        for saved, kl in points.get(name, []):
            mine = at(curve, saved)
            if mine:
                print(
                    f"# {saved:.2f} layers' bytes saved: {name} KL {kl:.4f}, predictive {mine:.4f}, a {mine / kl:.2f}"
                    " of it"
                )


def streamed(b):
    say(
        "policy",
        "setting",
        "layers",
        "bytes_per_token",
        "expected",
        "early",
        "late",
        "wasted",
        "tok_s_link",
        "tok_s_drive",
    )
    full = None
    for name, setting, skip in chosen(b):
        first = (name, setting) == ("off", "")
        link = b.perplexity(b.short, skip, first, [*STREAM, "--link", "nvme=" + b.a.link])
        drive = b.perplexity(b.short, skip, False, STREAM)
        read, tokens = link["bytes_read_per_token"], link["windows"] * 127
        full = read if first else full
        expected, wasted = (
            full - link["skipped_layers_per_token"] * b.gone(skip) * full / b.bytes,
            link["skip_wasted_bytes"] / tokens,
        )
        say(
            name,
            setting,
            link["skipped_layers_per_token"],
            read,
            expected,
            link["skip_early_chunks"],
            link["skip_late_chunks"],
            wasted,
            link["decode_tok_s"],
            drive["decode_tok_s"],
        )
        if not expected * 0.98 <= read <= expected * 1.02 + wasted:
            sys.exit(f"{name} {setting}: {read:.0f} bytes per token, expected {expected:.0f} and {wasted:.0f} wasted")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model", nargs="?", default=os.path.normpath(os.path.join(HERE, "../../models/demo.gguf")))
    p.add_argument("--text", default=os.path.join(HERE, "../../models/held-out.txt"), help="the scored text")
    p.add_argument("--bytes", default=10000, type=int, help="of it")
    p.add_argument("--streamed-bytes", default=2000, type=int, help="of it, where the model is streamed")
    p.add_argument("--n-questions", default=200, type=int)
    p.add_argument("--limit", default=16000, type=int, help="tokens to calibrate on")
    p.add_argument("--epochs", default=8, type=int)
    p.add_argument("--thresholds", default="0.95,0.9,0.8,0.7,0.5,0.4,0.3")
    p.add_argument("--options-at", default="0.9,0.7,0.4")
    p.add_argument("--most-static", default=3, type=int)
    p.add_argument("--link", default="330M", help="emulated drive, bytes per second")
    p.add_argument("--part", default="quality,streamed")
    p.add_argument("--only", help="policies, beside off")
    p.add_argument("--dir")
    p.add_argument("--quick", action="store_true", help="to try the script")
    a = p.parse_args()
    if a.quick:
        a.bytes, a.n_questions, a.limit, a.epochs, a.thresholds, a.options_at, a.most_static = (
            3000,
            20,
            4000,
            2,
            "0.9,0.5",
            "0.5",
            1,
        )
    with tempfile.TemporaryDirectory() as d:
        b = Bench(a, a.dir or d)
        print(
            f"# {a.model}: layers {b.first} to {b.last} may be skipped; the sidecar's threshold {b.threshold:.2f}; a"
            f" layer {b.layer_bytes} bytes, its K and V {b.kv_bytes}",
            flush=True,
        )
        for part in a.part.split(","):
            {"quality": quality, "streamed": streamed}[part](b)


if __name__ == "__main__":
    main()
