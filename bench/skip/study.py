#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What could layer skip and early exit reach on a model like `demo`? CSV on standard output.

    bench/skip/study.py MODEL TEXT --learn OTHER_TEXT [--windows N] [--part exit,static,learned]

The same passes as `ntx perplexity --skip`, in PyTorch and in F32, where every state is available. MODEL: F16 or F32
GGUF of architecture llama (models/train/export.py). Windows of 256 tokens; only tokens of the second half may skip; K
and V of skipped layers are propagated. Columns: skipped layers per token, perplexity, KL divergence from the full
model, and how often the most likely token is the full model's.

  exit      a token stops after the first layer that meets the criterion: the gap between the two greatest probabilities
            if this layer were the last; the cosine of the layer's input and output; or an oracle that knows from which
            layer on the most likely token stays the full model's
            `agrees`: share of the exiting tokens whose most likely token is then the full model's
            `saved`: skipped layers that are not under way at the exit, with one layer in flight
  static    the same layers for all: by the share of tokens with a high cosine (ntx calibrate), or one by one by their
            KL on the learned text; random
  learned   per token: oracles that know the test's labels, and the network of ntx calibrate trained on each label:
            cosine, and effect, the KL divergence of a token's output if only that layer is skipped for all
"""

import argparse
import json
import math
import os
import struct
import subprocess
import sys

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "train"))
from net import Net, Shape  # noqa: E402

NTX = os.path.join(os.environ.get("NTX_BIN", "build/bin"), "ntx")
W, H = 256, 129  # tokens of a window, the first that is scored


# ---- the model


class Reader:
    SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}

    def __init__(self, path):
        with open(path, "rb") as f:
            self.b = f.read()
        self.at = 8
        n_tensors, n_keys = self.number("Q"), self.number("Q")
        self.meta = dict((self.string(), self.value(self.number("I"))) for _ in range(n_keys))
        infos = [
            (self.string(), [self.number("Q") for _ in range(self.number("I"))], self.number("I"), self.number("Q"))
            for _ in range(n_tensors)
        ]
        base = -(-self.at // 32) * 32
        self.tensors = {
            n: torch.from_numpy(
                np.frombuffer(self.b, {0: np.float32, 1: np.float16}[t], math.prod(ne), base + at)
                .reshape(ne[::-1])
                .astype(np.float32)
            )
            for n, ne, t, at in infos
        }

    def number(self, form):
        (v,) = struct.unpack_from("<" + form, self.b, self.at)
        self.at += struct.calcsize("<" + form)
        return v

    def string(self):
        n = self.number("Q")
        self.at += n
        return self.b[self.at - n : self.at].decode("utf-8", "replace")

    def value(self, kind):
        if kind == 9:
            kind, n = self.number("I"), self.number("Q")
            return [self.value(kind) for _ in range(n)]
        return self.string() if kind == 8 else self.number(self.SCALARS[kind])


def halves(w, heads):
    """The rows of q or k as net.py rotates them: export.py's adjacent() backwards."""
    rows, cols = w.shape
    return w.reshape(heads, rows // heads // 2, 2, cols).transpose(1, 2).reshape(rows, cols)


def load(path):
    r = Reader(path)
    m = {k[6:]: v for k, v in r.meta.items() if k.startswith("llama.")}
    s = Shape(
        vocab=m["vocab_size"],
        layers=m["block_count"],
        embd=m["embedding_length"],
        heads=m["attention.head_count"],
        kv=m["attention.head_count_kv"],
        ff=m["feed_forward_length"],
        ctx=m["context_length"],
        eps=m["attention.layer_norm_rms_epsilon"],
        theta=m["rope.freq_base"],
        tied="output.weight" not in r.tensors,
    )
    w = {"embed.weight": r.tensors["token_embd.weight"], "norm.weight": r.tensors["output_norm.weight"]}
    if not s.tied:
        w["out.weight"] = r.tensors["output.weight"]
    names = {
        "attn_norm": "attn_norm",
        "ffn_norm": "ffn_norm",
        "q": "attn_q",
        "k": "attn_k",
        "v": "attn_v",
        "o": "attn_output",
        "gate": "ffn_gate",
        "up": "ffn_up",
        "down": "ffn_down",
    }
    for i in range(s.layers):
        for ours, theirs in names.items():
            t = r.tensors[f"blk.{i}.{theirs}.weight"]
            w[f"layers.{i}.{ours}.weight"] = halves(t, s.heads if ours == "q" else s.kv) if ours in "qk" else t
    net = Net(s)
    net.load_state_dict(w, strict=False)
    return net.eval()


def output(net, x):
    return F.log_softmax(F.linear(net.norm(x), (net.embed if net.out is None else net.out).weight), -1)


def forward(net, ids, skip=None, visit=None):
    """ids [windows x W], skip [windows x W x layers] -> the state after the last layer. visit(l, state) sees each."""
    x = net.embed(ids)
    cos, sin = net.cos[: ids.shape[1]], net.sin[: ids.shape[1]]
    for l, layer in enumerate(net.layers):
        y = layer(x, cos, sin)
        y = y if skip is None else torch.where(skip[:, :, l : l + 1], x, y)
        if visit:
            visit(l, x, y)
        x = y
    return x


# ---- a text, and what the full model does to it


class Text:
    def __init__(self, net, path, model, windows):
        with open(path, "rb") as f:
            ids = json.loads(subprocess.run([NTX, "tokenize", model], stdin=f, capture_output=True, check=True).stdout)
        n = min(windows, len(ids) // W)
        self.net, self.ids = net, torch.tensor(ids[: n * W]).view(n, W).clone()
        self.ids[:, 0] = ids[0]
        self.states, self.cos = [], []
        x = forward(net, self.ids, visit=self.visit)
        self.full = output(net, x)
        self.cos = torch.stack(self.cos, -1)  # [windows x W x layers]

    def visit(self, l, x, y):
        self.states.append(y)
        self.cos.append(F.cosine_similarity(x, y, dim=-1))

    def effects(self, layers):
        """[windows x W x layers] KL of each token's output when one layer is left out for all tokens."""
        out = []
        for l in layers:
            skip = torch.zeros(*self.ids.shape, self.net.s.layers, dtype=torch.bool)
            skip[..., l] = True
            out.append((self.full.exp() * (self.full - output(self.net, forward(self.net, self.ids, skip)))).sum(-1))
        return torch.stack(out, -1)

    def score(self, skip):
        """skip [windows x W x layers] -> layers per token, perplexity, KL, agreement.

        Agreement is the share of tokens whose most likely next token is the full model's.
        """
        skip = skip.clone()
        skip[:, : H - 1] = False
        got, full, part = (
            output(self.net, forward(self.net, self.ids, skip)[:, H - 1 : W - 1]),
            self.full[:, H - 1 : W - 1],
            skip[:, H - 1 : W - 1],
        )
        nll = -got.gather(-1, self.ids[:, H:, None]).mean()
        return (
            part.float().sum(-1).mean().item(),
            nll.exp().item(),
            (full.exp() * (full - got)).sum(-1).mean().item(),
            (got.argmax(-1) == full.argmax(-1)).float().mean().item(),
        )


def say(*columns):
    print(",".join(f"{c:.4f}" if isinstance(c, float) else str(c) for c in columns), flush=True)


# ---- early exit


def exits(net, t):
    n = net.s.layers
    each = [output(net, x) for x in t.states[:-1]]
    top = torch.stack([e.argmax(-1) for e in each], -1)  # [windows x W x n - 1]
    right = top == t.full.argmax(-1, keepdim=True)
    two = torch.stack([e.topk(2).values.exp() for e in each], -2)
    stays = right.flip(-1).long().cumprod(-1).flip(-1).bool()
    rules = [("exit oracle", "", stays)]
    rules += [("exit by gap", g, two[..., 0] - two[..., 1] >= g) for g in (0.5, 0.8, 0.9, 0.95, 0.99, 0.999)]
    rules += [("exit by cosine", c, t.cos[..., :-1] >= c) for c in (0.95, 0.97, 0.98, 0.985, 0.99)]
    for name, limit, holds in rules:
        left = torch.where(holds.any(-1), holds.long().argmax(-1), torch.tensor(n - 1))  # the last layer computed
        skip = torch.arange(n) > left[..., None]
        out = slice(H - 1, W - 1)
        gone = (left < n - 1)[:, out]
        agrees = right.gather(-1, left.clamp(max=n - 2)[..., None])[..., 0][:, out]
        saved = (n - 2 - left[:, out]).clamp(min=0).float().mean().item()
        say(
            name,
            limit,
            *t.score(skip),
            gone.float().mean().item(),
            agrees[gone].float().mean().item() if gone.any() else 1.0,
            saved,
        )


# ---- the same layers for every token, and any


def static(t, learn, layers, cosine):
    def mask(chosen):
        skip = torch.zeros(*t.ids.shape, t.net.s.layers, dtype=torch.bool)
        skip[..., chosen] = True
        return skip

    rate = (learn.cos[:, 1:, layers] >= cosine).float().mean((0, 1))
    order = [layers[i] for i in rate.argsort(descending=True).tolist()]
    for k in range(1, 5):
        say("static by cosine", " ".join(map(str, order[:k])), *t.score(mask(order[:k])))
    chosen = []
    few = Text.__new__(Text)
    few.net, few.ids, few.full = learn.net, learn.ids[:12], learn.full[:12]
    for _ in range(4):

        def cost(l):
            skip = torch.zeros(*few.ids.shape, t.net.s.layers, dtype=torch.bool)
            skip[..., chosen + [l]] = True
            return few.score(skip)[2]

        chosen.append(min((l for l in layers if l not in chosen), key=cost))
        say("static one by one", " ".join(map(str, chosen)), *t.score(mask(chosen)))
    for p in (0.05, 0.1, 0.2, 0.3):
        skip = torch.zeros(*t.ids.shape, t.net.s.layers, dtype=torch.bool)
        skip[..., layers] = torch.rand(*t.ids.shape, len(layers)) < p
        say("random", p, *t.score(skip))


# ---- per token


def train(x, y, epochs=10):
    """The network of ntx calibrate: 256 hidden units, binary cross entropy -> logits of a state."""
    mean, scale = x.mean(0), 1 / (x.std(0) + 1e-6)
    m = nn.Sequential(nn.Linear(x.shape[1], 256), nn.ReLU(), nn.Linear(256, y.shape[1]))
    steps, n = torch.optim.AdamW(m.parameters(), 1e-3, weight_decay=1e-2), epochs * -(-len(x) // 128)
    falling = torch.optim.lr_scheduler.LambdaLR(steps, lambda i: max(1 - i / n, 0))
    with torch.enable_grad():
        for _ in range(epochs):
            for b in torch.randperm(len(x)).split(128):
                steps.zero_grad()
                F.binary_cross_entropy_with_logits(m((x[b] - mean) * scale), y[b]).backward()
                steps.step()
                falling.step()
    return lambda z: m((z - mean) * scale)


def in_order(wanted):
    """No two in a row, from the first layer on, as predictor/policy_learned.c does with max=1."""
    out = torch.zeros_like(wanted)
    for l in range(wanted.shape[-1]):
        out[..., l] = wanted[..., l] & ~out[..., l - 1] if l else wanted[..., l]
    return out


def best_first(wanted, logits):
    """No two in a row, the surest first."""
    out = torch.zeros_like(wanted)
    rows = logits.masked_fill(~wanted, -math.inf)
    for _ in range(wanted.shape[-1] // 2 + 1):
        best = rows.argmax(-1, keepdim=True)
        out |= torch.zeros_like(out).scatter(-1, best, True) & (rows > -math.inf)
        for near in (best - 1, best, best + 1):
            rows = rows.scatter(-1, near.clamp(0, wanted.shape[-1] - 1), -math.inf)
    return out


def learned(t, learn, layers):
    def wide(narrow):
        skip = torch.zeros(*t.ids.shape, t.net.s.layers, dtype=torch.bool)
        skip[..., layers] = narrow
        return skip

    first = layers[0]
    x = learn.states[first - 1][:, 1:].reshape(-1, t.net.s.embd)
    # effects are wanted low, so their sign turns
    for name, a, b in (
        ("cosine", learn.cos[..., layers], t.cos[..., layers]),
        ("effect", -learn.effects(layers), -t.effects(layers)),
    ):
        a = a[:, 1:].reshape(-1, len(layers))
        for share in (0.1, 0.2, 0.3):
            limit = a.flatten().kthvalue(int((1 - share) * a.numel())).values
            say(f"oracle by {name}", share, *t.score(wide(b >= limit)))
        limit = a.flatten().kthvalue(int(0.7 * a.numel())).values
        logits = train(x, (a >= limit).float())(t.states[first - 1])
        for p in (0.9, 0.7, 0.5, 0.3):
            wanted = logits >= math.log(p / (1 - p))
            say(f"network by {name}", p, *t.score(wide(wanted)))
            say(f"network by {name} not in a row", p, *t.score(wide(in_order(wanted))))
            say(f"network by {name} not in a row surest first", p, *t.score(wide(best_first(wanted, logits))))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("--learn", required=True)
    p.add_argument("--windows", default=24, type=int)
    p.add_argument("--learn-windows", default=40, type=int)
    p.add_argument("--part", default="exit,static,learned")
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    torch.set_grad_enabled(False)
    net = load(a.model)
    t, learn = Text(net, a.text, a.model, a.windows), Text(net, a.learn, a.model, a.learn_windows)
    layers = list(range(max(net.s.layers // 8, 1), net.s.layers - 1))  # as ntx calibrate chooses them
    say("policy", "limit", "layers", "perplexity", "kl", "top1", "exit_share", "agrees", "saved")
    say("full", "", *t.score(torch.zeros(*t.ids.shape, net.s.layers, dtype=torch.bool)))
    if "exit" in a.part:
        exits(net, t)
    if "static" in a.part:
        static(
            t,
            learn,
            layers,
            learn.cos[:, 1:, layers].flatten().kthvalue(int(0.7 * learn.cos[:, 1:, layers].numel())).values,
        )
    if "learned" in a.part:
        learned(t, learn, layers)


if __name__ == "__main__":
    main()
