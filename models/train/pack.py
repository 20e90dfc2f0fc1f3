#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pack.py: from the corpus' text to rows of tokens for train.py.

  pack.py CORPUS.txt --tok tok.json --out rows.npz

ids [rows x 257] uint16: whole documents, <s> text </s>, packed as they fit (some are separated by an empty line
instead, as in a text file). weight [rows x 257] uint8: the weight of this token's loss (padding 0, text 1, answers
--answer, a person, thing or place that the story has already mentioned --again). subject [rows x 257] uint16: the name
of the subject of the sentence so far, 0 without one.
"""

import argparse
import random

import numpy as np

import bpe
import words

ROW = 257
POOL = 64
KEPT = {*words.GIRLS, *words.BOYS, *words.PET_NAMES, *words.THINGS, *words.PLACES}


class Subjects:
    """The subject of each token's sentence: the first name in it.

    If a pronoun comes first, the subject of the sentence before; for a question and its answer, the name in the
    question.
    """

    def __init__(self, tok):
        def forms(w):
            return [tok.id[f] for f in (w, bpe.SPELL[ord(" ")] + w) if f in tok.id]

        self.names = {i: forms(w)[-1] for w in (*words.GIRLS, *words.BOYS) for i in forms(w)}
        self.pronouns = {i for w in ("He", "She", "he", "she") for i in forms(w)}
        self.ends = {i for w in (".", '."', "!") for i in forms(w)}
        self.who = self.before = 0

    def of(self, line, ids):
        if line[:2] != "A:":
            self.who = 0
        for i in ids:
            if not self.who:
                self.who = self.names.get(i, self.before if i in self.pronouns else 0)
            yield self.who
            if i in self.ends and line[:2] not in ("Q:", "A:"):
                self.before, self.who = self.who, 0


def document(tok, kept, text, answer, again):
    """ids, weights and subjects; questions at the end that make it longer than a row are left out."""
    ids, weight, subject, seen, subjects = [bpe.BOS], [0], [0], set(), Subjects(tok)
    for line in text.splitlines(keepends=True):
        new = tok.encode(line)
        if line[:2] not in ("Q:", "A:"):
            for i in new:
                weight.append(again if i in seen else 1)
                seen |= {i} & kept
        elif len(ids) + len(new) < ROW - 16 or line[:2] == "A:":
            weight += [answer if line[:2] == "A:" and i >= 2 else 1 for i in range(len(new))]
        else:
            break
        ids += new
        subject += subjects.of(line, new)
    return ids + [bpe.EOS], weight + [1], subject + [0]


def pack(docs, rng, newline):
    """Yields rows: the longest document of a pool that still fits, until none does."""
    pool, docs, more = [], iter(docs), True
    while more or pool:
        row, weight, subject = [], [], []
        while True:
            while more and len(pool) < POOL:
                d = next(docs, None)
                more = d is not None
                if more and len(d[0]) <= ROW:
                    pool.append(d)
            fits = [i for i, d in enumerate(pool) if len(d[0]) <= ROW - len(row)]
            if not fits:
                break
            i = fits[0] if not row else max(fits, key=lambda i: len(pool[i][0]))
            ids, w, who = pool.pop(i)
            if row and rng.random() < 0.25:  # as in a text file: an empty line between
                row[-1], ids, w, who = newline, ids[1:], w[1:], who[1:]
            row += ids
            weight += w
            subject += who
        if row:
            yield row + [bpe.EOS] * (ROW - len(row)), weight + [0] * (ROW - len(row)), subject + [0] * (ROW - len(row))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("corpus")
    a.add_argument("--tok", required=True)
    a.add_argument("--out", required=True)
    a.add_argument("--answer", type=int, default=12)
    a.add_argument("--again", type=int, default=1)
    a.add_argument("--seed", type=int, default=1)
    a = a.parse_args()
    tok = bpe.Bpe(a.tok)
    kept = {tok.id[form] for w in KEPT for form in (w, bpe.SPELL[ord(" ")] + w) if form in tok.id}
    docs = (document(tok, kept, t + "\n", a.answer, a.again) for t in open(a.corpus).read().split("\n\n") if t)
    rows = list(pack(docs, random.Random(a.seed), tok.encode("\n")[0]))
    ids = np.array([r[0] for r in rows], np.uint16)
    weight = np.array([r[1] for r in rows], np.uint8)
    np.savez(a.out, ids=ids, weight=weight, subject=np.array([r[2] for r in rows], np.uint16))
    print(f"{len(rows)} rows, {int((weight > 0).sum())} tokens, {100 * (weight > 0).mean():.1f} % full")


if __name__ == "__main__":
    main()
