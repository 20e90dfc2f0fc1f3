#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train.py: trains a demo model for a given time; seeded, resumable.

  train.py demo --rows train.npz --held held.npz --dir /tmp/demo --minutes 55

The schedule depends on the time spent, not on steps, so that the run ends in time on any machine: warm up, hold, then
fall linearly to zero. DIR gets last.pt (every few minutes, and at the end; a run that finds it continues from there)
and loss.csv. Matrices are trained with Muon (momentum, orthogonalised by Newton-Schulz; K. Jordan 2024), the rest with
AdamW.
"""

import argparse
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F

import export
import net

BALANCE = 0.01  # weight of the loss that evens the experts' loads
PRESS = 0.01  # where the weight of the loss against active neurons starts; it rises while more than --active are
EMBED = 5  # an embedding that is not also the output matrix starts 50 times as large: its rate is AdamW's times this
SUBJECT = 0.3  # weight of the loss of telling whom a sentence is about
LONG_FROM = 0.85  # of the time: from here on rows are joined in pairs, so that all positions of the context are seen


class Muon:
    """Groups parameters by shape and orthogonalises each group in one batch."""

    def __init__(self, params, momentum=0.95, decay=0.02):
        self.groups, self.momentum, self.decay = {}, momentum, decay
        for p in params:
            self.groups.setdefault(tuple(p.shape), []).append(p)
        self.state = {k: torch.zeros(len(ps), *k, device=ps[0].device) for k, ps in self.groups.items()}

    @staticmethod
    def orthogonal(g):
        a, b, c = 3.4445, -4.7750, 2.0315
        x = g.bfloat16()
        tall = x.shape[-2] > x.shape[-1]
        x = x.mT if tall else x
        x = (x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)).contiguous()
        for _ in range(5):
            s = x @ x.mT
            x = a * x + (b * s + c * (s @ s)) @ x
        return (x.mT if tall else x).float()

    @torch.no_grad()
    def step(self, lr):
        for k, ps in self.groups.items():
            g = torch.stack([p.grad for p in ps])
            m = self.state[k].lerp_(g, 1 - self.momentum)
            u = self.orthogonal(g.lerp(m, self.momentum))
            scale = lr * max(1, k[-2] / k[-1]) ** 0.5
            for p, d in zip(ps, u):
                p.mul_(1 - lr * self.decay).sub_(d, alpha=scale)


def schedule(x):
    """Factor of the learning rate at x of the time."""
    if x < 0.02:
        return x / 0.02
    return 1.0 if x < 0.35 else max(0.0, (1 - x) / 0.65)


class Rows:
    """Batches in a seeded order: (ids, what follows, weights, subjects, and of rows that have them positions)."""

    def __init__(self, path, seed, device):
        z = np.load(path)
        self.positions = z["positions"] if "positions" in z else None
        self.ids, self.weight, self.subject, self.device = z["ids"], z["weight"], z["subject"], device
        self.seed = seed

    def batch(self, at, n, pairs=False, part=0, parts=1):
        """Rows [at, at + n) of the order; part of them where several processes share them."""
        epoch, at = divmod(at, len(self.ids))
        order = np.random.default_rng(self.seed + epoch).permutation(len(self.ids))
        pick = order[np.arange(at, at + n) % len(order)]
        n //= parts
        pick = pick[part * n : part * n + n]
        arrays = [
            self.ids[pick].astype(np.int64),
            self.weight[pick].astype(np.float32),
            self.subject[pick].astype(np.int64),
        ]
        if self.positions is not None:
            arrays.append(self.positions[pick].astype(np.int64))
        elif pairs:
            h = n // 2
            arrays = [np.concatenate((p[:h, :-1], p[h:]), 1) for p in arrays]
        ids, weight, subject, *positions = (torch.from_numpy(p).to(self.device) for p in arrays)
        return (
            ids[:, :-1].contiguous(),
            ids[:, 1:].contiguous(),
            weight[:, 1:].contiguous(),
            subject[:, :-1].contiguous(),
            *(p[:, :-1].contiguous() for p in positions),
        )


class Run:
    clock = staticmethod(time.time)

    def __init__(self, a):
        self.a = a
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(a.seed)
        self.shape = net.PRESETS[a.model]
        self.net = net.Net(self.shape).to(self.device)
        mats = [
            p for n, p in self.net.named_parameters() if p.ndim >= 2 and n.startswith("layers") and "router" not in n
        ]
        embed = self.net.embed.weight
        rest = [p for p in self.net.parameters() if not any(p is m for m in (*mats, embed))]
        self.muon = Muon(mats, decay=a.decay)
        self.adam = torch.optim.AdamW(
            [{"params": rest, "times": 1}, {"params": [embed], "times": 1 if self.shape.tied else EMBED}],
            lr=1.0,
            betas=(0.9, 0.95),
            weight_decay=0,
        )
        self.step, self.rows, self.spent = 0, 0, 0.0
        self.rank, self.world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        self.extra = torch.tensor(BALANCE if self.shape.experts else PRESS if self.shape.act == "relu" else 0.0)
        self.teacher = self.taught_by(a.teacher) if a.teacher else None
        self.loss = torch.compile(self.plain_loss, dynamic=False) if a.compile else self.plain_loss

    def taught_by(self, path):
        teacher = net.Net(export.shape(path)).to(self.device)
        teacher.load(export.weights(path))
        return teacher.requires_grad_(False).eval()

    def logits(self, x, positions=None, keep=None):
        with torch.autocast(self.device, torch.bfloat16):
            return self.net(x, positions, keep)

    def talk_loss(self, x, y, w, who, positions, factor):
        """Of conversations: that of what the model says."""
        if self.teacher:
            raise SystemExit("--teacher is for rows of stories, not of conversations")
        keep = w > 0
        logits, extra, statistic, _ = self.logits(x, positions, keep)
        text = F.cross_entropy(logits.float(), y[keep])
        return text + factor * extra, torch.stack((text.detach(), statistic))

    def plain_loss(self, x, y, w, who, positions, factor):
        """The loss of text, subjects (of stories) and FFNs (times factor); the text's alone; the FFNs' statistic."""
        if positions is not None:
            return self.talk_loss(x, y, w, who, positions, factor)
        logits, extra, statistic, subject = self.logits(x)
        told = F.cross_entropy(subject.float().flatten(0, 1), who.flatten(), ignore_index=0)
        if self.teacher:  # what the teacher would say, not what stands there
            with torch.autocast(self.device, torch.bfloat16):
                y = self.teacher(x)[0].float().flatten(0, 1).softmax(-1)
            w = (w > 0).float()
        nll = F.cross_entropy(logits.float().flatten(0, 1), y if self.teacher else y.flatten(), reduction="none")
        text = (nll * w.flatten()).sum() / w.sum()
        return text + SUBJECT * told + factor * extra, torch.stack((text.detach(), statistic))

    def save(self):
        if self.rank:
            return
        path = os.path.join(self.a.dir, "last.pt")
        torch.save(
            {
                "shape": net.shape_dict(self.shape),
                "net": self.net.state_dict(),
                "muon": self.muon.state,
                "adam": self.adam.state_dict(),
                "step": self.step,
                "rows": self.rows,
                "spent": self.spent,
                "extra": self.extra,
            },
            path + ".new",
        )
        os.replace(path + ".new", path)

    def resume(self):
        path = os.path.join(self.a.dir, "last.pt")
        if not os.path.exists(path):
            if self.a.init:
                self.net.load(self.start(self.grown(export.weights(self.a.init))))
            return
        c = torch.load(path, map_location=self.device)
        self.net.load_state_dict(c["net"])
        self.adam.load_state_dict(c["adam"])
        self.muon.state = c["muon"]
        self.step, self.rows, self.spent, self.extra = c["step"], c["rows"], c["spent"], c["extra"]

    def grown(self, weights):
        """With rows for the tokens of a vocabulary that was added to: each is what its two parts are, at first."""
        if not self.a.tok:
            return weights
        t = json.load(open(self.a.tok))
        ids = {s: i for i, s in enumerate(t["tokens"])}
        made = {ids[a + b]: (ids[a], ids[b]) for a, b in (m.split(" ") for m in reversed(t["merges"]))}
        for name in ("embed.weight", "out.weight"):
            old = weights[name][: t["from"]]
            w = torch.cat(
                (
                    old,
                    torch.randn(len(ids) - len(old), old.shape[1], generator=torch.Generator().manual_seed(self.a.seed))
                    * old.std(),
                )
            )
            for i in range(len(old), len(w)):
                if i in made:
                    w[i] = (w[made[i][0]] + w[made[i][1]]) / 2**0.5
            weights[name] = w
        return weights

    def start(self, weights):
        """Starts from the weights of a dense model.

        Every two experts begin as the halves of its FFN, divided at random; as their outputs are averaged, they are
        doubled.
        """
        s, rng = self.shape, np.random.default_rng(self.a.seed)
        for i in range(s.layers if s.experts else 0):
            gate, up, down = (weights.pop(f"layers.{i}.ffn.{n}.weight") for n in ("gate", "up", "down"))
            parts = torch.from_numpy(
                np.concatenate([rng.permutation(len(gate)) for _ in range(s.experts * s.ff // len(gate))])
            ).view(s.experts, s.ff)
            new = {
                "gates": gate[parts],
                "ups": up[parts],
                "downs": 2 * down[:, parts].transpose(0, 1),
                "router.weight": self.net.layers[i].ffn.router.weight.data,
            }
            weights.update({f"layers.{i}.ffn.{n}": w for n, w in new.items()})
        return weights

    @torch.no_grad()
    def held(self, rows, n=32):
        """Loss per token of the text, and the share of answers whose every token is the most likely one."""
        x, y, w, _, *positions = rows.batch(0, n)
        self.net.eval()
        logits = self.logits(x, *positions)[0].float()
        self.net.train()
        nll = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none").view_as(w)
        right, answer = (logits.argmax(-1) == y).cpu().numpy(), (w > 1).cpu().numpy()
        spans = good = 0
        for r, m in zip(right, answer):
            edge = np.flatnonzero(np.diff(np.concatenate(([0], m.astype(int), [0]))))
            for lo, hi in zip(edge[::2], edge[1::2]):
                spans, good = spans + 1, good + bool(r[lo:hi].all())
        return (nll * (w > 0)).sum().item() / (w > 0).sum().item(), good / max(spans, 1)

    def batch(self, train, long=False):
        b = train.batch(self.rows, self.a.batch, long, self.rank, self.world)
        return b if len(b) == 5 else (*b, None)

    def agree(self, told):
        """Gradients and what the loss told become their means over the processes, the clock that of the first."""
        if self.world == 1:
            return told
        grads = [p.grad for p in self.net.parameters()]
        clock = torch.tensor([self.world * self.spent if self.rank == 0 else 0.0])
        flat = torch.cat([g.flatten() for g in grads] + [told, clock])
        dist.all_reduce(flat)
        flat /= self.world
        for g, part in zip(grads, flat.split([g.numel() for g in grads] + [3])):
            g.copy_(part.view_as(g))
        self.spent = flat[-1].item()
        return flat[-3:-1]

    def update(self, batch, lr):
        loss, told = self.loss(*batch, self.extra)
        loss.backward()
        text, statistic = self.agree(told).tolist()
        if self.shape.act == "relu":
            self.extra *= 1.02 if statistic > self.a.active else 1 / 1.02
        for g in self.adam.param_groups:
            g["lr"] = lr * self.a.adam * g["times"]
        self.adam.step()
        self.muon.step(lr * self.a.muon)
        self.net.zero_grad()
        return text, statistic

    def train(self):
        a, budget = self.a, self.a.minutes * 60
        train, held = Rows(a.rows, a.seed, self.device), Rows(a.held, 0, self.device)
        os.makedirs(a.dir, exist_ok=True)
        if self.world > 1:
            dist.init_process_group("gloo")
        self.resume()
        self.loss(*self.batch(train), self.extra)[0].backward()  # compiles, outside the clock
        self.net.zero_grad()
        last = saved = self.clock()
        with open(os.path.join(a.dir, "loss.csv") if self.rank == 0 else os.devnull, "a") as log:
            if log.tell() == 0:
                log.write("step,seconds,rows,loss,held_loss,held_answers,statistic\n")
            while self.spent < budget:
                loss, statistic = self.update(
                    self.batch(train, self.spent > LONG_FROM * budget), schedule(self.spent / budget)
                )
                self.step, self.rows = self.step + 1, self.rows + a.batch
                if self.step % a.every == 0 and self.rank == 0:
                    h = self.held(held)
                    log.write(
                        f"{self.step},{self.spent:.0f},{self.rows},{loss:.4f},{h[0]:.4f},{h[1]:.4f},{statistic:.4f}\n"
                    )
                    log.flush()
                now = self.clock()
                self.spent, last = self.spent + min(now - last, a.longest), now
                if now - saved > 240:
                    self.save()
                    saved = now
            h = self.held(held, 96 if self.rank == 0 else 1)
            log.write(f"{self.step},{self.spent:.0f},{self.rows},{loss:.4f},{h[0]:.4f},{h[1]:.4f},{statistic:.4f}\n")
        self.save()


def main():
    a = argparse.ArgumentParser()
    a.add_argument("model", choices=sorted(net.PRESETS))
    a.add_argument("--rows", required=True)
    a.add_argument("--held", required=True)
    a.add_argument("--dir", required=True)
    a.add_argument("--init", help="GGUF file of export.py whose weights to start from")
    a.add_argument(
        "--teacher",
        help=(
            "GGUF file of export.py whose distribution is learned in place of the text: a drafter is the better for it"
        ),
    )
    a.add_argument("--tok", help="the vocabulary, where it was added to since --init")
    a.add_argument(
        "--longest",
        type=float,
        default=8,
        help="seconds that one step may add to the clock: a longer one was stopped, or compiled",
    )
    a.add_argument(
        "--active", type=float, default=0.12, help="of a ReLU model: the share of its neurons that may be active"
    )
    a.add_argument("--minutes", type=float, required=True)
    a.add_argument("--batch", type=int, default=24, help="rows of 256 tokens a step")
    a.add_argument("--muon", type=float, default=0.02)
    a.add_argument("--decay", type=float, default=0.02, help="of the matrices, times their rate")
    a.add_argument("--adam", type=float, default=0.003)
    a.add_argument("--every", type=int, default=100, help="steps between lines of loss.csv")
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--threads", type=int, default=2)
    a.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    a = a.parse_args()
    torch.set_num_threads(a.threads)
    Run(a).train()


if __name__ == "__main__":
    main()
