#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shared.py: makes of a demo model one whose layers share matrices, by distillation.

Each matrix is that of a base, which several layers have, plus a low-rank product of the layer's own.

  shared.py ../../models/demo.gguf --bases 1 --rank 32 --rows train.npz --held held.npz --dir shared --minutes 60

At the start the FFNs' neurons are permuted so that layers are most alike (that changes no result), a base is the mean
of its layers, and the low-rank matrices are from the singular values of the differences. First each layer alone learns
to give the teacher's output for the teacher's input (--local, a share of the time), then the whole model learns: from
the text's loss, the teacher's distribution, and its states after each layer, whose weight falls to zero.

  shared.py ../../models/demo.gguf --dir shared --tok ../../models/tokenizer.json --name demo-shared \\
      --out ../../models/demo-shared.gguf

writes the content of DIR in the form of model/layer_delta.h, all matrices in F16.

Schedule, resumption and log are those of train.py; the clock is CPU time. --bases 0: the low-rank matrices alone, to
see what the base contributes.
"""

import argparse
import copy
import json
import os
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.func import functional_call

import export
import net
import train

KINDS = ("q", "k", "v", "o", "ffn.gate", "ffn.up", "ffn.down")
MATCH = 2.0  # weight of the teacher's states at first, and of its distribution


def greedy(alike):
    """Of a square matrix the pairs, the most alike first: of each row its column."""
    n = len(alike)
    column, a = torch.empty(n, dtype=torch.long), alike.clone()
    for _ in range(n):
        i, j = divmod(int(a.argmax()), n)
        column[i] = j
        a[i], a[:, j] = -torch.inf, -torch.inf
    return column


def ordered(w, group):
    """The neurons of a group's layers, permuted (with the signs of up and down) to fit their mean so far best."""
    names = [[f"layers.{i}.{k}.weight" for k in ("ffn.gate", "ffn.up", "ffn.down")] for i in group]
    mean = [w[n].clone() for n in names[0]]
    for count, (gate, up, down) in enumerate(names[1:], 1):
        g, rest = mean[0] @ w[gate].T, mean[1] @ w[up].T + mean[2].T @ w[down]
        pick = greedy(g + rest.abs())
        sign = rest[torch.arange(len(pick)), pick].sign()
        w[gate], w[up], w[down] = w[gate][pick], w[up][pick] * sign[:, None], w[down][:, pick] * sign
        for m, n in zip(mean, (gate, up, down)):
            m.mul_(count).add_(w[n]).div_(count + 1)


class Shared(torch.nn.Module):
    """The parameters; `whole()` are those of net.Net."""

    def __init__(self, shape, w, bases, rank):
        super().__init__()
        self.layers, each = shape.layers, -(-shape.layers // max(bases, 1))
        self.group = [i // each for i in range(shape.layers)]
        for g in range(max(bases, 1)):
            ordered(w, [i for i in range(shape.layers) if self.group[i] == g])
        self.base, self.a, self.b, self.rest = (torch.nn.ParameterDict() for _ in range(4))
        for kind in KINDS:
            all = torch.stack([w.pop(f"layers.{i}.{kind}.weight") for i in range(shape.layers)])
            base = torch.stack(
                [all[[i for i in range(shape.layers) if self.group[i] == g]].mean(0) for g in range(max(bases, 1))]
            ) * bool(bases)
            u, s, v = torch.linalg.svd(all - base[self.group], full_matrices=False)
            root = s[:, :rank].sqrt()
            key = kind.replace(".", "_")
            for g in range(len(base)):
                self.base[f"{key}_{g}"] = torch.nn.Parameter(base[g], requires_grad=bases > 0)
            for i in range(shape.layers):
                self.a[f"{key}_{i}"], self.b[f"{key}_{i}"] = (
                    (u[i, :, :rank] * root[i]).contiguous(),
                    (root[i, :, None] * v[i, :rank]).contiguous(),
                )
        for name, value in w.items():
            self.rest[name.replace(".", "_")] = value
        self.names = {name.replace(".", "_"): name for name in w}

    def whole(self):
        out = {name: self.rest[key] for key, name in self.names.items()}
        for kind in KINDS:
            key = kind.replace(".", "_")
            for i in range(self.layers):
                out[f"layers.{i}.{kind}.weight"] = (
                    self.base[f"{key}_{self.group[i]}"] + self.a[f"{key}_{i}"] @ self.b[f"{key}_{i}"]
                )
        return out

    def matrices(self):
        return [p for d in (self.base, self.a, self.b) for p in d.values() if p.requires_grad]


class Run(train.Run):
    clock = staticmethod(time.process_time)

    def __init__(self, a):
        self.a, self.device = a, "cpu"
        torch.manual_seed(a.seed)
        self.shape = export.shape(a.teacher)
        if a.act:
            self.shape.act = a.act
        self.teacher = net.Net(export.shape(a.teacher))
        self.teacher.load(export.weights(a.teacher))
        self.student = copy.deepcopy(self.teacher)
        for layer in self.student.layers:
            layer.ffn.relu = self.shape.act == "relu"
        self.teacher.requires_grad_(False)
        self.net = Shared(self.shape, export.weights(a.teacher), a.bases, a.rank)
        self.net.rest["subject_weight"] = self.student.subject.weight.detach()
        self.net.names["subject_weight"] = "subject.weight"
        self.muon = train.Muon(self.net.matrices(), decay=a.decay)
        self.adam = torch.optim.AdamW(
            [{"params": list(self.net.rest.values()), "times": 1}], lr=1.0, betas=(0.9, 0.95), weight_decay=0
        )
        self.step, self.rows, self.spent, self.rank, self.world = 0, 0, 0.0, 0, 1
        self.extra = torch.tensor(train.PRESS if self.shape.act == "relu" else 0.0)
        self.loss = self.plain_loss

    def start(self, weights):
        return weights

    def logits(self, x, positions=None, keep=None, states=None):
        with torch.autocast("cpu", torch.bfloat16):
            return functional_call(self.student, self.net.whole(), (x,), {"states": states})

    def plain_loss(self, x, y, w, who, positions, factor):
        states = []
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            told = self.teacher(x, states=states)[0].float()
        at = self.spent / (self.a.minutes * 60)
        return (
            self.alone(states, factor)
            if at < self.a.local
            else self.together(x, y, w, told, states, max(0.0, 1 - at / 0.7), factor)
        )

    def alone(self, states, factor):
        """Each layer for the teacher's input: what it misses of the teacher's step, by the square, as a share of it."""
        whole, cos, sin = self.net.whole(), self.teacher.cos, self.teacher.sin
        n, loss, statistic = states[0].shape[1], 0, 0
        for i, layer in enumerate(self.student.layers):
            mine = {k[len(f"layers.{i}.") :]: v for k, v in whole.items() if k.startswith(f"layers.{i}.")}
            with torch.autocast("cpu", torch.bfloat16):
                out, extra, s = functional_call(layer, mine, (states[i], cos[:n], sin[:n]))
            loss = loss + missed(out, states[i + 1], states[i]) + factor * extra
            statistic = statistic + s
        loss = loss / len(states)
        return loss, torch.stack((loss.detach(), statistic / len(states)))

    def together(self, x, y, w, told, states, match, factor):
        mine = []
        logits, extra, statistic, _ = self.logits(x, states=mine)
        logits, flat = logits.float().flatten(0, 1), w.flatten()
        text = (F.cross_entropy(logits, y.flatten(), reduction="none") * flat).sum() / flat.sum()
        kl = (
            F.kl_div(logits.log_softmax(-1), told.flatten(0, 1).log_softmax(-1), log_target=True, reduction="none").sum(
                -1
            )
            * flat
        ).sum() / flat.sum()
        far = sum(missed(m, t, 0) for m, t in zip(mine[1:], states[1:])) / len(states)
        return text + self.a.kl * kl + MATCH * match * far + factor * extra, torch.stack((text.detach(), statistic))

    def export(self):
        return {
            "shape": net.shape_dict(self.shape),
            "net": {k: v.detach() for k, v in self.net.whole().items()},
            "shared": {
                "group": self.net.group,
                **{
                    n: {k: v.detach() for k, v in d.items()}
                    for n, d in (("base", self.net.base), ("a", self.net.a), ("b", self.net.b))
                },
            },
        }


def tensors(c):
    """Of an export: those of export.tensors, but for matrices that a base stands for."""
    s, shared = c["shape"], c["shared"]
    group = shared["group"]
    first = [group.index(g) for g in range(max(group) + 1)]
    heads = {"q": s["heads"], "k": s["kv"]}

    def f16(name, kind):
        w = shared[name[0]][f"{kind.replace('.', '_')}_{name[1]}"].float().numpy()
        return (export.adjacent(w, heads[kind]) if kind in heads and name[0] != "b" else w).astype(np.float16)

    names = {(export.NAMES | export.DENSE)[f"{kind}.weight"]: kind for kind in KINDS}
    for name, w in export.tensors(s, c["net"]):
        part = name.split(".")
        kind = names.get(part[2]) if part[0] == "blk" else None
        if not kind:
            yield name, w
            continue
        layer = int(part[1])
        if layer in first:
            yield name, f16(("base", group[layer]), kind)
        yield name + ".lora_a", f16(("b", layer), kind)
        yield name + ".lora_b", f16(("a", layer), kind)


def write(a):
    c = torch.load(os.path.join(a.dir, "whole.pt"), map_location="cpu")
    meta = export.metadata(c["shape"], json.load(open(a.tok)), a.name)
    group = c["shared"]["group"]
    export.write(a.out, meta + [("ntx.delta.base", export.U32, [group.index(g) for g in group])], list(tensors(c)))


def missed(out, wanted, before):
    return (out.float() - wanted.float()).square().mean() / (wanted - before).float().square().mean()


def main():
    a = p = argparse.ArgumentParser()
    a.add_argument("teacher", help="GGUF file of export.py")
    a.add_argument(
        "--bases", type=int, default=1, help="each is shared by as many layers, one behind the other; 0: none"
    )
    a.add_argument("--rank", type=int, default=32)
    a.add_argument("--act", choices=("silu", "relu"), help="of the FFN, if not the teacher's")
    a.add_argument(
        "--active", type=float, default=0.12, help="of a ReLU model: the share of its neurons that may be active"
    )
    a.add_argument("--local", type=float, default=0.15, help="share of the time in which layers learn alone")
    a.add_argument("--kl", type=float, default=1.0)
    a.add_argument("--rows")
    a.add_argument("--held")
    a.add_argument("--out", help="write what DIR has to this file")
    a.add_argument("--tok")
    a.add_argument("--name", default="demo-shared")
    a.add_argument("--dir", required=True)
    a.add_argument("--longest", type=float, default=8)
    a.add_argument("--minutes", type=float, default=20)
    a.add_argument("--batch", type=int, default=12)
    a.add_argument("--muon", type=float, default=0.01)
    a.add_argument("--decay", type=float, default=0.1)
    a.add_argument("--adam", type=float, default=0.001)
    a.add_argument("--every", type=int, default=50)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--threads", type=int, default=1)
    a = a.parse_args()
    if a.out:
        write(a)
        return
    if not a.rows or not a.held:
        p.error("--rows and --held, or --out, are wanted")
    a.init = a.tok = None
    torch.set_num_threads(a.threads)
    run = Run(a)
    run.train()
    torch.save(run.export(), os.path.join(a.dir, "whole.pt"))


if __name__ == "__main__":
    main()
