#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ntx perplexity --save-logits and --kl against the same figures computed here from the output of `ntx logits`."""

import array
import json
import math
import os
import random
import stat
import statistics

from kit import check, close, model, ntx, path, refused, write

SHAPE = ['--layers', '3', '--embd', '128', '--ff', '256', '--heads', '4', '--kv', '2', '--seed', '9']
CTX = 24
F16, Q4 = model('f16.gguf', *SHAPE, '--type', 'F16'), model('q4.gguf', *SHAPE, '--type', 'Q4_0')
WORDS = """the and to of in is it that was for you with he she they his her once upon a time there little girl boy
happy""".split()


def log_softmax(row):
    top = max(row)
    z = math.log(math.fsum(math.exp(x - top) for x in row)) + top
    return [x - z for x in row]


def rows_of(name, ids):
    """Log-probabilities after each token of a window, from `ntx logits`."""
    ntx('logits', name, '--tokens', ','.join(map(str, ids)), '-o', path('l'), '--quiet')
    a = array.array('f')
    with open(path('l'), 'rb') as f:
        a.frombytes(f.read())
    n = len(a) // len(ids)
    return [log_softmax(a[i * n : (i + 1) * n]) for i in range(len(ids))]


def quantile(v, q):
    at = q * (len(v) - 1)
    i = int(at)
    return v[i] + (at - i) * (v[min(i + 1, len(v) - 1)] - v[i])


def reference(ids):
    kl, change, windows, same, nll = [], [], [], 0, [0.0, 0.0]
    for w in range(len(ids) // CTX):
        window = [ids[0]] + ids[w * CTX + 1 : (w + 1) * CTX]
        base, run = rows_of(F16, window), rows_of(Q4, window)
        for i in range(CTX // 2, CTX - 1):
            kl.append(math.fsum(math.exp(b) * (b - r) for b, r in zip(base[i], run[i])))
            same += base[i].index(max(base[i])) == run[i].index(max(run[i]))
            nll[0] -= base[i][window[i + 1]]
            nll[1] -= run[i][window[i + 1]]
            change.append(base[i][window[i + 1]] - run[i][window[i + 1]])
        here = slice(-(CTX - 1 - CTX // 2), None)
        windows.append((statistics.mean(change[here]), statistics.mean(kl[here])))
    error = statistics.stdev(kl) / math.sqrt(len(kl))
    kl.sort()
    n = len(kl)
    return windows, {
        'tokens': n,
        'kl_mean': math.fsum(kl) / n,
        'kl_median': quantile(kl, 0.5),
        'kl_99': quantile(kl, 0.99),
        'kl_max': kl[-1],
        'kl_error': error,
        'change': statistics.mean(change),
        'change_error': statistics.stdev(change) / math.sqrt(n),
        'top1_agreement': same / n,
        'base_perplexity': math.exp(nll[0] / n),
        'perplexity': math.exp(nll[1] / n),
    }


def hostile(base, text):
    """A file cut anywhere, or with any field of the header damaged, is refused in one line."""
    with open(base, 'rb') as f:
        good = f.read()

    def bad(pattern, data):
        with open(path('bad'), 'wb') as f:
            f.write(data)
        refused(111, pattern, 'perplexity', Q4, text, '--kl', path('bad'), '--quiet')

    bad('not a file of logits', b'')
    bad('not a file of logits', good[:100])
    bad('not a file of logits', b'GGUF' + good[4:])
    bad('another version', good[:8] + b'\2' + good[9:])
    bad('cut short', good[:300])
    bad('cut short', good[:-1])
    bad('longer than', good + b'x')
    for at in (12, 16, 20, 24):  # n_vocab, ctx, windows, scored
        bad('bad:', good[:at] + b'\xff\xff\xff\x7f' + good[at + 4 :])
        bad('header is damaged', good[:at] + b'\0\0\0\0' + good[at + 4 :])
    bad('tokens are damaged', good[:256] + b'\xff' * 4 + good[260:])
    bad('another text', good[:260] + b'\x05\0\0\0' + good[264:])
    first = 256 + 4 * int.from_bytes(good[16:20], 'little') * int.from_bytes(good[20:24], 'little')
    bad('a row of it is damaged', good[:first] + b'\xff' * 8 + good[first + 8 :])
    bad('a row of it is damaged', good[: first + 12] + b'\xff' * 4 + good[first + 16 :])


def main():
    random.seed(3)
    text = write('text', ' '.join(random.choice(WORDS) for _ in range(90)))
    base = path('base')
    args = ['--ctx', str(CTX), '--json', '--quiet']
    plain = json.loads(ntx('perplexity', F16, text, *args))
    saved = json.loads(ntx('perplexity', F16, text, '--save-logits', base, *args))
    for key in plain:
        close(saved[key], plain[key], 1e-9 * plain[key], 'with --save-logits, ' + key)

    itself = json.loads(ntx('perplexity', F16, text, '--kl', base, '--json', '--quiet', '--threads', '1'))
    check(
        [itself[k] for k in ('kl_mean', 'kl_median', 'kl_99', 'kl_max', 'top1_agreement')] == [0, 0, 0, 0, 1],
        'against itself: %r' % itself,
    )
    check(
        itself['perplexity'] == itself['base_perplexity'] and itself['base'] == 'f16.gguf',
        'against itself: %r' % itself,
    )

    got = json.loads(ntx('perplexity', Q4, text, '--kl', base, *args))
    with open(text) as f:
        ids = json.loads(
            os.popen("'%s' tokenize '%s' < '%s'" % (os.path.join(os.environ['NTX_BIN'], 'ntx'), F16, text)).read()
        )
    windows, want = reference(ids)
    for key, value in want.items():
        close(got[key], value, 5e-5 * max(1, abs(value)), 'Q4_0 against F16, ' + key)
    check(len(got['by_window']) == len(windows), 'windows: %r' % got['by_window'])
    for at, (here, wanted) in enumerate(zip(got['by_window'], windows)):
        close(here[0], wanted[0], 5e-5, 'change in window %d' % at)
        close(here[1], wanted[1], 5e-5, 'KL in window %d' % at)
    check(got['kl_mean'] > 1e-4 and got['kl_median'] <= got['kl_99'] <= got['kl_max'], 'Q4_0 against F16: %r' % got)
    words = ntx('perplexity', Q4, text, '--kl', base, '--quiet')
    check(
        'KL divergence mean %.6f ± %.6f' % (got['kl_mean'], got['kl_error']) in words
        and 'change of ln perplexity %+.4f ± %.4f' % (got['change'], got['change_error']) in words
        and 'agrees %.2f %%' % (100 * got['top1_agreement']) in words,
        'as text: %r' % words,
    )

    hostile(base, text)
    refused(111, 'windows of 24 tokens', 'perplexity', Q4, text, '--kl', base, '--ctx', '32', '--quiet')
    refused(111, 'another text', 'perplexity', Q4, write('other', 'once ' * 100), '--kl', base, '--quiet')
    other = model('other.gguf', *SHAPE, '--vocab-size', '700')
    refused(111, '700', 'perplexity', other, text, '--kl', base, '--quiet')
    refused(100, 'exclude each other', 'perplexity', Q4, text, '--kl', base, '--save-logits', path('x'))
    if os.path.exists('/dev/full') and stat.S_ISCHR(os.stat('/dev/full').st_mode):
        refused(111, 'cannot write', 'perplexity', Q4, text, '--save-logits', '/dev/full', *args)
        check(os.path.exists('/dev/full'), '/dev/full was removed: half a file may be, a device never')
    print(
        '%d tokens: mean KL %.6f, agreement %.3f, as computed here'
        % (got['tokens'], got['kl_mean'], got['top1_agreement'])
    )


main()
