#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bpe.py: byte-level BPE as GGUF's tokenizer "gpt2" with the pre-tokenizer "gpt-2" means it.

  bpe.py CORPUS.txt --vocab 1536 --out tok.json       learns merges from the corpus (ASCII text)

As a module: Bpe(path).encode(text) -> ids, .decode(ids). Ids 0 and 1 are <s> and </s>; text never becomes those."""

import argparse
import collections
import json
import re

# gpt-2's expression, for ASCII.
WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")
BOS, EOS = 0, 1


def alphabet():
    """Byte -> printable character, as GPT-2's vocabularies spell bytes."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in keep]
    return {**{b: chr(b) for b in keep}, **{b: chr(256 + i) for i, b in enumerate(rest)}}


SPELL = alphabet()
BYTE = {c: b for b, c in SPELL.items()}


def merge(parts, pair):
    out, i = [], 0
    while i < len(parts):
        if i + 1 < len(parts) and (parts[i], parts[i + 1]) == pair:
            out.append(parts[i] + parts[i + 1])
            i += 2
        else:
            out.append(parts[i])
            i += 1
    return out


def learn(text, vocab):
    """tokens and merges; stops early when every word is one token, and fills up with <unused>."""
    words = collections.Counter(WORD.findall(text))
    words = [([SPELL[b] for b in w.encode()], n) for w, n in sorted(words.items())]
    tokens = ["<s>", "</s>"] + [SPELL[b] for b in range(256)]
    merges = []
    while len(tokens) < vocab:
        pairs = collections.Counter()
        for parts, n in words:
            for pair in zip(parts, parts[1:]):
                pairs[pair] += n
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        words = [(merge(parts, best), n) for parts, n in words]
        merges.append(best)
        if best[0] + best[1] not in tokens:
            tokens.append(best[0] + best[1])
    whole = sum(len(parts) == 1 for parts, _ in words)
    print(f"{len(words)} words, {whole} of them one token; {len(merges)} merges, {len(tokens)} tokens")
    tokens += [f"<unused{i}>" for i in range(vocab - len(tokens))]
    return tokens, [f"{a} {b}" for a, b in merges]


class Bpe:
    def __init__(self, path):
        t = json.load(open(path))
        self.tokens, self.merges = t["tokens"], t["merges"]
        self.id = {s: i for i, s in enumerate(self.tokens)}
        self.rank = {tuple(m.split(" ")): i for i, m in enumerate(self.merges)}
        self.words = {}

    def word(self, w):
        parts = [SPELL[b] for b in w.encode()]
        while len(parts) > 1:
            best = min(zip(parts, parts[1:]), key=lambda p: self.rank.get(p, 1 << 30))
            if best not in self.rank:
                break
            parts = merge(parts, best)
        return [self.id[p] for p in parts]

    def encode(self, text):
        out = []
        for w in WORD.findall(text):
            ids = self.words.get(w)
            if ids is None:
                ids = self.words[w] = self.word(w)
            out += ids
        return out

    def decode(self, ids):
        return bytes(BYTE[c] for i in ids if i > EOS for c in self.tokens[i]).decode(errors="replace")


if __name__ == "__main__":
    a = argparse.ArgumentParser()
    a.add_argument("corpus")
    a.add_argument("--vocab", type=int, default=1536)
    a.add_argument("--chars", type=int, default=12000000, help="of the corpus, from its beginning")
    a.add_argument("--out", required=True)
    a = a.parse_args()
    tokens, merges = learn(open(a.corpus).read(a.chars), a.vocab)
    json.dump({"tokens": tokens, "merges": merges}, open(a.out, "w"))
