#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a KV type costs in long contexts: each of 64 answers stands at one place of a context of 4096 tokens.

The model is an induction head with hand-made weights, so that right answers do not depend on training: the head of the
first layer looks one position back and copies that token's code beside its own; the head of the second layer looks
where the token before was the current one, and copies the token that stood there.
"""

import array
import math
import os
import random
import sys

from kit import check, model, ntx, path

sys.path.insert(0, os.path.join(os.environ['NTX_SOURCE'], 'tests', 'lib'))
from gguf_edit import Gguf  # noqa: E402

EMBD, HEAD, BASE, CODE = 256, 128, 1e9, 48
OWN, CONST, BEFORE, FOUND = 0, 48, 64, 128  # where the residual has what
STEP, MATCH = 1.035, 1.0  # how sharply the heads look: at 0.92 q4_0 finds 51
CTX, QUESTIONS, FIRST = 4096, 64, 300  # tokens from FIRST on: keys, their values, and what is between
draw = random.Random(7)


def matrix(n_out, n_in, entries):
    m = array.array('f', bytes(4 * n_out * n_in))
    for row, column, value in entries:
        m[row * n_in + column] = value
    return bytearray(m.tobytes())


def induction(name):
    """The weights.

    A pair of values of a head turns by base^(-i/64) per position: the first 16 pairs tell positions apart, the last 24
    hardly turn and hold codes.
    """
    g = Gguf(
        model(
            'random.gguf',
            '--layers',
            '2',
            '--embd',
            str(EMBD),
            '--heads',
            '1',
            '--kv',
            '1',
            '--head-dim',
            str(HEAD),
            '--ff',
            '32',
            '--type',
            'F32',
            '--ctx',
            str(CTX),
            '--rope-base',
            '1e9',
        )
    )
    vocab = g.tensors[b'token_embd.weight'][0][1]
    code = [[draw.choice((-1.0, 1.0)) for _ in range(CODE)] for _ in range(vocab)]
    turn = [BASE ** (-i / 64) for i in range(16)]
    half = HEAD - CODE
    put = {
        'token_embd': matrix(
            vocab,
            EMBD,
            [(t, OWN + i, c) for t in range(vocab) for i, c in enumerate(code[t])]
            + [(t, CONST, math.sqrt(CODE)) for t in range(vocab)],
        ),
        'output': matrix(vocab, EMBD, [(t, FOUND + i, c) for t in range(vocab) for i, c in enumerate(code[t])]),
        'blk.0.attn_q': matrix(HEAD, EMBD, [(2 * i, CONST, STEP) for i in range(16)]),
        'blk.0.attn_k': matrix(
            HEAD,
            EMBD,
            [
                x
                for i, a in enumerate(turn)
                for x in ((2 * i, CONST, STEP * math.cos(a)), (2 * i + 1, CONST, STEP * math.sin(a)))
            ],
        ),
        'blk.0.attn_v': matrix(HEAD, EMBD, [(i, OWN + i, 1.0) for i in range(CODE)]),
        'blk.0.attn_output': matrix(EMBD, HEAD, [(BEFORE + i, i, 0.612) for i in range(CODE)]),
        'blk.1.attn_q': matrix(HEAD, EMBD, [(half + i, OWN + i, MATCH) for i in range(CODE)]),
        'blk.1.attn_k': matrix(HEAD, EMBD, [(half + i, BEFORE + i, MATCH) for i in range(CODE)]),
        'blk.1.attn_v': matrix(HEAD, EMBD, [(i, OWN + i, 1.0) for i in range(CODE)]),
        'blk.1.attn_output': matrix(EMBD, HEAD, [(FOUND + i, i, 1.0) for i in range(CODE)]),
    }
    for t, (shape, _, body) in g.tensors.items():
        name_of = t.decode().removesuffix('.weight')
        if 'norm' in name_of:
            body[:] = array.array('f', [1.0] * shape[0]).tobytes()
        elif 'ffn_down' in name_of:
            body[:] = bytes(len(body))
        elif name_of in put:
            check(len(body) == len(put[name_of]), '%s has %d bytes' % (name_of, len(body)))
            body[:] = put[name_of]
    return g.write(path(name)), vocab


def text():
    """Needles (a key and its value) anywhere in filler text, then all keys: the model must write each key's value."""
    ids = list(range(FIRST, FIRST + 2 * QUESTIONS + 110))
    keys, values, hay = ids[:QUESTIONS], ids[QUESTIONS : 2 * QUESTIONS], ids[2 * QUESTIONS :]
    body = [[draw.choice(hay)] for _ in range(CTX - 3 * QUESTIONS - 1)]
    places = sorted(draw.sample(range(len(body)), QUESTIONS), reverse=True)
    for place, k in zip(places, draw.sample(range(QUESTIONS), QUESTIONS)):
        body.insert(place, [keys[k], values[k]])
    return [1] + [t for part in body for t in part] + keys, dict(zip(keys, values))


def right(file, vocab, tokens, answer, kv_type):
    out = path('logits')
    ntx(
        'logits',
        file,
        '--tokens',
        ','.join(map(str, tokens)),
        '-o',
        out,
        '--ctx',
        str(CTX),
        '--kv-type',
        kv_type,
        '--quiet',
    )
    n = 0
    with open(out, 'rb') as f:
        for at in range(len(tokens) - QUESTIONS, len(tokens)):
            f.seek(at * vocab * 4)
            row = array.array('f', f.read(vocab * 4))
            n += row.index(max(row)) == answer[tokens[at]]
    return n


def main():
    file, vocab = induction('needle.gguf')
    tokens, answer = text()
    check(len(tokens) == CTX, '%d tokens' % len(tokens))
    found = {t: right(file, vocab, tokens, answer, t) for t in ('f16', 'q8_0', 'q4_0')}
    print('right of %d: %s' % (QUESTIONS, ', '.join('%s %d' % x for x in found.items())))
    check(found['f16'] >= 60 and found['q8_0'] >= found['f16'] - 1 and found['q4_0'] >= found['f16'] - 4, '%r' % found)
    untold = [FIRST + 2 * QUESTIONS if t in answer.values() else t for t in tokens]
    check(right(file, vocab, untold, answer, 'f16') == 0, 'answers that nothing tells')


main()
