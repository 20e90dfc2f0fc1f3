#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""chat.py: the chat model's vocabulary, and its rows for train.py.

  chat.py vocab --tok models/tokenizer.json --out chat-tok.json           the demo's, with chat tokens and more merges
  chat.py rows --tok chat-tok.json --seed 1 --talks 60000 --out rows.npz  --held: held-out pairs of person and thing
  chat.py held --seed 9 --talks 400 --out held.jsonl                      the same conversations as JSON, one per line

A row has ids [rows x 385], weight (2: what the model must say, weighted as an answer; 0: all else) and positions. In
some rows positions jump, so that training covers every distance of the context (Zhu et al. 2023) with short rows.
"""

import argparse
import json
import random
import re

import jinja2
import numpy as np

import bpe
import talks

ROW, CTX, POOL = 385, 4096, 64
MARKS = ["<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>"]


def dumps(x):
    return json.dumps(x, ensure_ascii=False)


ENV = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
ENV.filters["tojson"] = dumps
TEMPLATE = ENV.from_string(talks.TEMPLATE)


def render(talk, n, ask=False):
    return TEMPLATE.render(messages=talk["messages"][:n], tools=talk["tools"] or None, add_generation_prompt=ask)


def parts(talk):
    """(text, whether the model says it), in order."""
    at = 0
    for i, m in enumerate(talk["messages"]):
        if m["role"] != "assistant":
            continue
        before, whole = render(talk, i, True), render(talk, i + 1)
        assert whole.startswith(before), (before, whole)
        yield before[at:], False
        yield whole[len(before) : -1], True  # up to <|im_end|>
        at = len(whole) - 1


class Tokenizer(bpe.Bpe):
    def __init__(self, path):
        super().__init__(path)
        self.mark = re.compile("(" + "|".join(re.escape(m) for m in MARKS) + ")")

    def encode(self, text):
        out = []
        for piece in self.mark.split(text):
            out += [self.id[piece]] if piece in MARKS else super().encode(piece)
        return out


def vocab(a):
    t = json.load(open(a.tok))
    used = [s for s in t["tokens"] if not s.startswith("<unused")]
    tokens, merges = used + MARKS, [tuple(m.split(" ")) for m in t["merges"]]
    rng, tok = random.Random(3), bpe.Bpe(a.tok)
    count = {}
    split = re.compile("|".join(re.escape(m) for m in MARKS))
    for _ in range(6000):
        for text, _ in parts(talks.talk(rng, False)):
            for piece in split.split(text):
                for w in bpe.WORD.findall(piece):
                    count[w] = count.get(w, 0) + 1
    words = [([tok.tokens[i] for i in tok.word(w)], n) for w, n in sorted(count.items())]
    while len(tokens) < a.size:
        pairs = {}
        for p, n in words:
            for pair in zip(p, p[1:]):
                if not any(c.isdigit() for c in "".join(pair)):
                    pairs[pair] = pairs.get(pair, 0) + n
        best = max(pairs, key=lambda p: (pairs[p], p), default=None)
        if not best or pairs[best] < 20:
            break
        words = [(bpe.merge(p, best), n) for p, n in words]
        merges.append(best)
        if best[0] + best[1] not in tokens:
            tokens.append(best[0] + best[1])
    total = sum(n for _, n in words)
    print(f"{len(tokens)} tokens; {sum(len(p) * n for p, n in words) / total:.2f} tokens a word")
    tokens += [f"<unused{i}>" for i in range(a.size - len(tokens))]
    json.dump(
        {"tokens": tokens, "merges": [f"{x} {y}" for x, y in merges], "marks": MARKS, "from": len(used)},
        open(a.out, "w"),
    )


def document(tok, talk):
    ids, weight = [bpe.BOS], [0]
    for text, said in parts(talk):
        new = tok.encode(text)
        ids += new
        weight += [2 if said else 0] * len(new)
    return ids, weight


def leaps(ids, start, rng):
    """Positions of a row that leaps at some beginnings of messages."""
    places = [i for i, t in enumerate(ids) if t == start]
    out = np.arange(len(ids))
    room = CTX - len(ids)
    if rng.random() < 0.6 and places:
        for i in sorted(rng.sample(places, min(len(places), rng.randint(1, 6)))):
            more = int(room * rng.random() ** 2)
            out[i:] += more
            room -= more
    return out


def rows(a):
    tok, rng = Tokenizer(a.tok), random.Random(a.seed)
    pool, out, left = [], [], a.talks
    while left or pool:
        while left and len(pool) < POOL:
            left -= 1
            d = document(tok, talks.talk(rng, a.held))
            if len(d[0]) <= ROW:
                pool.append(d)
        ids, weight = [], []
        while True:
            fits = [i for i, d in enumerate(pool) if len(d[0]) <= ROW - len(ids)]
            if not fits:
                break
            i = fits[0] if not ids else max(fits, key=lambda i: len(pool[i][0]))
            d = pool.pop(i)
            ids += d[0]
            weight += d[1]
        if ids:
            out.append((ids + [bpe.EOS] * (ROW - len(ids)), weight + [0] * (ROW - len(ids))))
    start = tok.id["<|im_start|>"]
    positions = np.array([leaps(r[0], start, rng) for r in out], np.uint16)
    ids, weight = (np.array([r[k] for r in out], t) for k, t in ((0, np.uint16), (1, np.uint8)))
    np.savez(a.out, ids=ids, weight=weight, positions=positions, subject=np.zeros_like(ids))
    print(f"{len(out)} rows, {int((ids != bpe.EOS).sum())} tokens, {int((weight > 0).sum())} of them said by the model")


def held(a):
    rng = random.Random(a.seed)
    with open(a.out, "w") as f:
        f.writelines(dumps(talks.talk(rng, True)) + "\n" for _ in range(a.talks))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("what", choices=["vocab", "rows", "held"])
    a.add_argument("--tok")
    a.add_argument("--out", required=True)
    a.add_argument("--size", type=int, default=1792)
    a.add_argument("--seed", type=int, default=1)
    a.add_argument("--talks", type=int, default=60000)
    a.add_argument("--held", action="store_true")
    a = a.parse_args()
    {"vocab": vocab, "rows": rows, "held": held}[a.what](a)


if __name__ == "__main__":
    main()
