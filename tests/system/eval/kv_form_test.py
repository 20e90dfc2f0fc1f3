#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--kv-type q8_0 and q4_0 where K has values that are far larger than the others.

A model with biases of 300 in some values of K, as Qwen2.5 has them, and one whose norms differ by a factor of 100, as
Gemma 3's do: both types stay close to F16, and their text depends on nothing else than the model and the prompt.
With NTX_LONG, and published models in the folder NTX_REAL: their perplexity, of the text NTX_REAL_TEXT, too.
"""

import glob
import json
import os
import struct
import sys

from kit import check, model, ntx, path, refused, write

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', '..')
sys.path.insert(0, os.path.join(ROOT, 'tests', 'lib'))
from gguf_edit import Gguf  # noqa: E402

SHAPE = [
    '--layers',
    '3',
    '--embd',
    '256',
    '--ff',
    '512',
    '--heads',
    '4',
    '--kv',
    '2',
    '--type',
    'Q8_0',
    '--ctx',
    '1024',
]
PROMPT = 'once upon a time there was a little girl who said that she would play with him ' * 6
HEAD = 64


def edited(name, source, change):
    """A model whose vectors `change` has changed: it gets a name and a list of floats."""
    g = Gguf(source)
    for tensor, parts in g.tensors.items():
        if parts[1] == 0 and len(parts[0]) == 1:
            values = list(struct.unpack('<%df' % (len(parts[2]) // 4), parts[2]))
            change(tensor.decode(), values)
            parts[2][:] = struct.pack('<%df' % len(values), *values)
    g.write(path(name))
    return path(name)


def add_biases(tensor, values):
    """Slow and fast pairs: value i of a head is rotated with value i + 32."""
    if not tensor.endswith('attn_k.bias'):
        return
    for head in range(len(values) // HEAD):
        for k, pair in enumerate((31, 30, 28, 9, 1)):
            values[head * HEAD + pair] = 300 - 40 * k
            values[head * HEAD + pair + 32] = -150


def fill_biases(tensor, values):
    if tensor.endswith('attn_k.bias'):
        values[:] = [300] * len(values)


def spread_norms(tensor, values):
    if tensor.endswith('attn_k_norm.weight'):
        values[:] = [20 if i % 32 in (7, 19) else 0.2 + i % 5 / 5 for i in range(len(values))]
    if tensor.endswith('attn_q_norm.weight'):
        values[:] = [0.2 if i % 32 in (7, 19) else 3 for i in range(len(values))]


def distances(m, name):
    """Mean KL of q8_0 and q4_0 from f16."""
    base, words = path(name + '.base'), write(name + '.txt', PROMPT * 4)
    ntx('perplexity', m, words, '--ctx', '128', '--save-logits', base, '--quiet')
    return [
        json.loads(ntx('perplexity', m, words, '--kl', base, '--kv-type', k, '--json', '--quiet'))['kl_mean']
        for k in ('q8_0', 'q4_0')
    ]


def text(m, *options):
    return ntx('run', m, PROMPT, '--raw', '--ignore-eos', '-n', '16', '--ctx', '512', '--quiet', *options)


def synthetic():
    plain = model('qwen2.gguf', '--arch', 'qwen2', '--biases', '--seed', '4', *SHAPE)
    biased = edited('biased.gguf', plain, add_biases)
    normed = edited('normed.gguf', model('qwen3.gguf', '--arch', 'qwen3', '--seed', '4', *SHAPE), spread_norms)
    for m, name in ((biased, 'biases'), (normed, 'norms')):
        q8, q4 = distances(m, name)
        print('%s: mean KL %.2e with q8_0, %.2e with q4_0' % (name, q8, q4))
        check(q8 < MOST[name][0] and q4 < MOST[name][1], '%s: mean KL %g and %g' % (name, q8, q4))
        for k in ('q8_0', 'q4_0'):
            want = text(m, '--kv-type', k)
            for options in (
                ['--threads', '1'],
                ['--kernel', 'generic'],
                ['--rows', '7'],
                ['--ram', '8M'],
                ['--draft', 'lookup'],
            ):
                check(
                    text(m, '--kv-type', k, *options) == want, '%s, %s: with %r the text differs' % (name, k, options)
                )


def published(folder, words):
    """Perplexity within 0.3 % of F16's with q8_0 (as measured; a text of this length tells no less), 2 % with q4_0."""
    for m in sorted(glob.glob(os.path.join(folder, '*.gguf'))):
        at = [
            json.loads(ntx('perplexity', m, words, '-c', '1024', '--kv-type', k, '--json', '--quiet'))['perplexity']
            for k in ('f16', 'q8_0', 'q4_0')
        ]
        print(os.path.basename(m), *('%.4f' % x for x in at))
        check(abs(at[1] / at[0] - 1) < 0.003 and at[2] / at[0] < 1.02, '%s: perplexity %r' % (m, at))


def hopeless():
    """96 pairs of a head with biases of 300 are more than are kept apart."""
    shape = [*SHAPE[:-2], '--ctx', '512', '--head-dim', '192']
    m = edited('full.gguf', model('wide.gguf', '--arch', 'qwen2', '--biases', *shape), fill_biases)
    refused(111, 'adds up to 424 to K', 'run', m, 'x', '--kv-type', 'q4_0', '--quiet')
    text(m)


MOST = {'biases': (0.1, 0.7), 'norms': (0.003, 0.03)}  # without the form: 0.8 and 3.2 with biases
synthetic()
hopeless()
if os.environ.get('NTX_LONG') and os.environ.get('NTX_REAL'):
    published(os.environ['NTX_REAL'], os.environ.get('NTX_REAL_TEXT', os.path.join(ROOT, 'docs', 'architecture.md')))
