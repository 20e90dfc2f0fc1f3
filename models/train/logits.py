#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""logits.py: what PyTorch computes (in F32) from a file of export.py, as a reference for other programs.

  logits.py MODEL.gguf held.txt --tok tok.json

Prints JSON: ids, the beginning of the text; top, after every eighth of them the five most likely tokens with their
logits; of a ReLU model the share of active neurons.
"""

import argparse
import json

import torch

import bpe
import export
import net


def main():
    a = argparse.ArgumentParser()
    a.add_argument("model")
    a.add_argument("text")
    a.add_argument("--tok", required=True)
    a.add_argument("--tokens", type=int, default=128)
    a = a.parse_args()
    model = net.Net(export.shape(a.model)).eval()
    model.load(export.weights(a.model))
    ids = [bpe.BOS] + bpe.Bpe(a.tok).encode(open(a.text).read(8 * a.tokens))[: a.tokens - 1]
    with torch.no_grad():
        logits, _, statistic, _ = model(torch.tensor([ids]))
    top = [
        [[i, round(v, 4)] for v, i in zip(*(x.tolist() for x in logits[0, at].topk(5)))] for at in range(7, len(ids), 8)
    ]
    out = {"ids": ids, "top": top}
    if model.s.act == "relu":
        out["active"] = round(statistic.item(), 4)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
