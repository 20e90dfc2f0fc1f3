#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""golden_test.py made|logits|greedy|perplexity: ntx against the numbers of other engines.

  made        golden.json (see make.py): tiny models by ntx-mkmodel, logits by llama.cpp; needs nothing else
  logits      the reference data's logits.json
  greedy      its greedy.json
  perplexity  its table of perplexities

Standard library only. Exits 0, 1 with every failure printed, or 77 where the reference data is absent."""

import array
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile

BIN, DATA = os.environ['NTX_BIN'], os.environ.get('NTX_DATA', '')
HERE = os.path.dirname(os.path.abspath(__file__))
MAY_TURN = (  # a near-tie in their random routers can turn a row to other experts: of these the median row is compared
    'nanomoe.q'
)

failures = []


def check(ok, text):
    print(('ok    ' if ok else 'FAIL  ') + text, flush=True)
    if not ok:
        failures.append(text)


def ntx(*args):
    r = subprocess.run(
        [os.path.join(BIN, 'ntx')] + list(args),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=300 * int(os.environ.get('NTX_TEST_SLOW', 1)),
    )
    if r.returncode:
        raise RuntimeError(
            'ntx %s: exit %d: %s' % (' '.join(args)[:200], r.returncode, r.stderr.decode(errors='replace').strip())
        )
    return r.stdout.decode()


def floats(path, first=0, count=None):
    a = array.array('f')
    with open(path, 'rb') as f:
        f.seek(4 * first)
        data = f.read() if count is None else f.read(4 * count)
    a.frombytes(data)
    return a


def logits(model, ids, n_vocab, tmp):
    out = os.path.join(tmp, 'logits.f32')
    ntx('logits', model, '--tokens', ','.join(map(str, ids)), '-o', out, '--ctx', str(max(512, len(ids))))
    size = os.path.getsize(out)
    if size != 4 * n_vocab * len(ids):
        raise RuntimeError('%s: %d bytes of logits, expected %d x %d floats' % (model, size, len(ids), n_vocab))
    return floats(out)


def argmax(row):
    return max(range(len(row)), key=row.__getitem__)


def compare(name, got, want, sd, tolerance, tops, gaps, argmaxes):
    """got, want: rows of the same samples; tops: ntx's most likely token of each row.

    A most likely token must be the reference's if the reference's gap to the second exceeds three times the tolerance.
    """
    squares = [sum((g - w) ** 2 for g, w in zip(a, b)) for a, b in zip(got, want)]
    turns = name.startswith(MAY_TURN)
    mean = sorted(squares)[len(want) // 2] / len(want[0]) if turns else sum(squares) / sum(len(r) for r in want)
    rms = math.sqrt(mean) / sd
    wrong = (
        [] if turns else [i for i, (t, a) in enumerate(zip(tops, argmaxes)) if t != a and gaps[i] > 3 * tolerance * sd]
    )
    check(
        rms <= tolerance and not wrong,
        '%-28s rms/sd %.3g of %.3g allowed, best token %d of %d%s'
        % (
            name,
            rms,
            tolerance,
            sum(t == a for t, a in zip(tops, argmaxes)),
            len(tops),
            ', wrong at rows %s' % wrong if wrong else '',
        ),
    )


def make_model(case, tmp):
    path = os.path.join(tmp, case['name'] + '.gguf')
    subprocess.run(
        [os.path.join(BIN, 'ntx-mkmodel')] + case['options'].split() + [path], check=True, stdout=subprocess.DEVNULL
    )
    if os.path.exists(path):
        return path
    return os.path.join(tmp, sorted(f for f in os.listdir(tmp) if f.startswith(case['name']))[0])  # the first part


def ids_of(case):
    if 'ids' in case:
        return case['ids']
    r = random.Random(case['name'])  # as make.py draws them
    return [1] + [r.randrange(3, case['n_vocab']) for _ in range(case['n_ids'] - 1)]


def test_made(tmp):
    with open(os.path.join(HERE, 'golden.json')) as f:
        cases = json.load(f)['cases']
    for c in cases:
        rows = logits(make_model(c, tmp), ids_of(c), c['n_vocab'], tmp)
        rows = [rows[p * c['n_vocab'] : (p + 1) * c['n_vocab']] for p in c['positions']]
        noise = max(c[k]['rms_over_sd'] for k in ('main_vs_ref', 'batch_vs_main', 'f16kv_vs_main'))
        compare(
            c['name'],
            [[r[i] for i in c['indices']] for r in rows],
            c['logits'],
            c['logit_sd'],
            2 * noise + 1e-4,
            [argmax(r) for r in rows],
            c['gap'],
            c['argmax'],
        )
    return len(cases)


def reference(name):
    path = os.path.join(DATA, name)
    if not os.path.exists(path):
        print('skipped: no reference data at', DATA or '$NTX_DATA')
        sys.exit(77)
    return path


def noise_of(entry, key):
    return max(entry[k][key] for k in ('main_vs_ref64', 'mainbatch_vs_base', 'mainf16kv_vs_base') if k in entry)


def test_logits(tmp):
    with open(reference('golden/logits.json')) as f:
        entries = json.load(f)
    for e in entries:
        n, rows = e['n_vocab'], logits(reference('models/' + e['model']), e['ids'], e['n_vocab'], tmp)
        rows = [rows[p * n : (p + 1) * n] for p in e['positions']]
        want = floats(reference('golden/' + e.get('ref64', e['main'])))
        want = [want[i * n : (i + 1) * n] for i in range(len(rows))]
        compare(
            '%s %s' % (e['model'], e['seq']),
            rows,
            want,
            e['logit_sd'],
            2 * noise_of(e, 'rms_over_sd') + 1e-4,
            [argmax(r) for r in rows],
            e['gap'],
            e['argmax'],
        )
    return len(entries)


def test_greedy(tmp):
    with open(reference('golden/greedy.json')) as f:
        paths = [g for g in json.load(f) if not g['model'].startswith(MAY_TURN)]
    with open(reference('golden/prompts.json')) as f:
        prompts = json.load(f)
    with open(reference('golden/logits.json')) as f:
        noise = {e['model']: noise_of(e, 'max_abs') for e in json.load(f) if e['seq'] == 'A'}
    for g in paths:
        lines = ntx(
            'run',
            reference('models/' + g['model']),
            prompts[g['prompt']]['text'],
            '--raw',
            '--temp',
            '0',
            '--json',
            '--ignore-eos',
            '-n',
            str(len(g['main'])),
        ).splitlines()
        got = [line['token'] for line in map(json.loads, lines) if 'token' in line]
        same = next((i for i, (a, b) in enumerate(zip(got, g['main'])) if a != b), min(len(got), len(g['main'])))
        close = same < len(got) and g['gap'][same] <= 2 * noise[g['model']]  # from there the paths may differ
        check(
            len(got) == len(g['main']) and (same == len(got) or close),
            '%-28s %d of %d greedy tokens%s'
            % (g['model'], same, len(g['main']), ', then a near-tie (gap %.3g)' % g['gap'][same] if close else ''),
        )
    return len(paths)


PERPLEXITY = {  # by llama.cpp, windows of 256 and of 512 tokens
    's260k.f32': (3.3558, 3.1129),
    's260k.f16': (3.3556, 3.1131),
    's260k.q4_k_m': (3.3957, 3.1460),
    's260kpad.f16': (3.3556, 3.1130),
    's260kpad.q8_0': (3.3587, 3.1141),
    's260kpad.q6_k': (3.3681, 3.1247),
    's260kpad.q5_k_m': (3.4038, 3.1582),
    's260kpad.q4_k_m': (3.5641, 3.2974),
    's260kpad.q4_0': (3.7248, 3.4643),
}


def test_perplexity(tmp):
    text, done = reference('ppl/stories260K.sample.txt'), 0
    sanitized = (
        int(os.environ.get('NTX_TEST_SLOW', 1)) > 1
    )  # there `logits` and `greedy` run these models, and perplexities are the same command each time
    for name, want in PERPLEXITY.items():
        if sanitized and name != 's260kpad.q4_k_m':
            continue
        both = not sanitized and name in (
            's260k.f32',
            's260kpad.q4_k_m',
        )  # the longer windows say little more and take as long again
        for ctx, ppl in list(zip((256, 512), want))[: 2 if both else 1]:
            done += 1
            out = ntx(
                'perplexity', reference('models/%s.gguf' % name), text, '--ctx', str(ctx), '--threads', '1'
            )  # its steps are so small that two threads beside another test mostly wait
            found = re.search(r'perplexity\D*(\d+\.\d+)', out)
            got = float(found.group(1)) if found else math.nan
            check(abs(got - ppl) <= 0.005 * ppl, '%-28s ctx %d: %.4f, expected %.4f' % (name, ctx, got, ppl))
    return done


def main():
    tests = {'made': test_made, 'logits': test_logits, 'greedy': test_greedy, 'perplexity': test_perplexity}
    if len(sys.argv) != 2 or sys.argv[1] not in tests:
        print(__doc__, file=sys.stderr)
        return 100
    with tempfile.TemporaryDirectory() as tmp:
        n = tests[sys.argv[1]](tmp)
    print('%d comparisons, %d failed' % (n, len(failures)))
    return 1 if failures or not n else 0


if __name__ == '__main__':
    sys.exit(main())
