#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--kv-type q8_0: reported as lossy, half the memory, close to F16.

It must be as independent as F16 of threads, instruction set, streaming and rows per pass.
"""

import json

from kit import check, model, ntx, path, refused, write

M = model(
    'm.gguf',
    '--layers',
    '4',
    '--embd',
    '256',
    '--ff',
    '1024',
    '--heads',
    '4',
    '--kv',
    '2',
    '--type',
    'Q8_0',
    '--seed',
    '4',
    '--ctx',
    '1024',
)
PROMPT = 'once upon a time there was a little girl who said that she would play with him ' * 6


def run(*options):
    text = ntx(
        'run',
        M,
        PROMPT,
        '--raw',
        '--ignore-eos',
        '-n',
        '24',
        '--ctx',
        '1024',
        '--quiet',
        '--stats',
        path('s'),
        *options,
    )
    with open(path('s')) as f:
        return text, json.load(f)


def main():
    plain, f16 = run()
    text, q8 = run('--kv-type', 'q8_0')
    check(
        (f16['lossy'], f16['kv_type'], q8['lossy'], q8['kv_type']) == ([], 'f16', ['kv_q8_0'], 'q8_0'),
        'statistics: %r, %r' % (f16, q8),
    )
    pool = 2 * 1024 * 2 * 64 * 4  # K and V, positions, heads of 64, layers: values
    holes = f16['bytes_kv'] - 2 * pool
    check(
        0 < holes < 0.02 * pool and q8['bytes_kv'] == pool * 34 // 32 + holes,
        'bytes of KV: %d and %d' % (f16['bytes_kv'], q8['bytes_kv']),
    )
    for options in (
        ['--threads', '1'],
        ['--kernel', 'generic'],
        ['--kernel', 'avx2'],
        ['--rows', '7'],
        ['--ram', '8M'],
    ):
        if options[0] == '--kernel' and q8['kernel'] == 'generic':
            continue
        check(run('--kv-type', 'q8_0', *options)[0] == text, 'with %r the text differs' % options)
        check(run(*options)[0] == plain, 'F16: with %r the text differs' % options)
    check(run('--ram', '8M')[1]['bytes_read'] > 0, '--ram 8M does not stream')

    base = path('base')
    words = write('text', PROMPT * 4)
    ntx('perplexity', M, words, '--ctx', '128', '--save-logits', base, '--quiet')
    kl = json.loads(ntx('perplexity', M, words, '--kl', base, '--kv-type', 'q8_0', '--json', '--quiet'))
    check(0 < kl['kl_mean'] < 0.01 and kl['top1_agreement'] > 0.9, 'against F16: %r' % kl)
    print(
        'mean KL %.6f, agreement %.3f; %d bytes instead of %d'
        % (kl['kl_mean'], kl['top1_agreement'], q8['bytes_kv'], f16['bytes_kv'])
    )

    odd = model('odd.gguf', '--layers', '2', '--embd', '64', '--ff', '64', '--heads', '4')
    refused(111, 'multiple of 32', 'run', odd, 'x', '--kv-type', 'q8_0', '--quiet')


main()
