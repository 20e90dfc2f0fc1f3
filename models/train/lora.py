#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lora.py: fine-tunes a demo model with low-rank matrices (LoRA), and writes an adapter for `ntx run --lora`.

  lora.py MODEL.gguf --rows train.npz --rank 8 --minutes 3 --out adapter.gguf

MODEL's weights stay as they are. The rows are those of pack.py, of the changed task's text.
"""

import argparse
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.func import functional_call

import export
import net
from shared import KINDS


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--rows", required=True)
    p.add_argument("--rank", type=int, default=8)
    p.add_argument("--alpha", type=float, default=16)
    p.add_argument("--minutes", type=float, default=3, help="of one core")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--rate", type=float, default=2e-3)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--out", required=True)
    a = p.parse_args()
    torch.manual_seed(a.seed)
    torch.set_num_threads(1)
    shape, w = export.shape(a.model), export.weights(a.model)
    model = net.Net(shape)
    model.load({k: v.clone() for k, v in w.items()})
    model.requires_grad_(False)
    names = [f"layers.{i}.{kind}.weight" for i in range(shape.layers) for kind in KINDS]
    low = {n: torch.nn.Parameter(torch.randn(a.rank, w[n].shape[1]) / w[n].shape[1] ** 0.5) for n in names}
    high = {n: torch.nn.Parameter(torch.zeros(w[n].shape[0], a.rank)) for n in names}
    scale, opt = a.alpha / a.rank, torch.optim.AdamW([*low.values(), *high.values()], lr=a.rate, weight_decay=0)
    rows, began, step = np.load(a.rows), time.process_time(), 0
    ids, weight = rows["ids"], rows["weight"]
    while (spent := (time.process_time() - began) / (60 * a.minutes)) < 1:
        pick = np.random.default_rng(a.seed * 100000 + step).integers(len(ids), size=a.batch)
        x, y, f = (
            torch.tensor(ids[pick, :-1].astype(np.int64)),
            torch.tensor(ids[pick, 1:].astype(np.int64)),
            torch.tensor(weight[pick, 1:].astype(np.float32)),
        )
        with torch.autocast("cpu", torch.bfloat16):
            logits = functional_call(model, {n: w[n] + scale * high[n] @ low[n] for n in names}, (x,))[0].float()
        loss = (F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="none") * f.flatten()).sum() / f.sum()
        opt.param_groups[0]["lr"] = a.rate * min(1, (step + 1) / 20, 2 * (1 - spent))
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.3f}", flush=True)
    files, out, heads = export.NAMES | export.DENSE, [], {"q": shape.heads, "k": shape.kv}
    for n in names:
        _, i, kind = n.split(".", 2)
        name, b = f"blk.{i}.{files[kind]}.weight", high[n].detach().numpy()
        part = kind.removesuffix(".weight")
        out += [
            (name + ".lora_a", low[n].detach().numpy().astype(np.float16)),
            (name + ".lora_b", (export.adjacent(b, heads[part]) if part in heads else b).astype(np.float16)),
        ]
    text = [("general.architecture", "llama"), ("general.type", "adapter"), ("adapter.type", "lora")]
    export.write(a.out, [(k, export.STR, v) for k, v in text] + [("adapter.lora.alpha", export.F32, a.alpha)], out)


if __name__ == "__main__":
    main()
