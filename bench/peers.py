#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode and prefill rates in memory, by type, compared with other programs, in turn in one run.

    bench/peers.py [--types Q4_K_M,Q8_0] [--rounds 3] [--build build] [--dir DIR] [--batches]
                   --peer NAME='PATH/llama-bench ARGUMENT...' ...

Makes a model of each type with ntx-mkmodel in DIR (a dense 2.5-billion-parameter Llama; default: a temporary directory;
models that are there already are used, and with --model only those it names). Each round runs `bench_kernels`' plain
read of memory, `ntx bench` and each peer (any llama-bench: -p, -n, -t, -r, -o csv), all with the same threads. Decode
starts at an empty context, prefill is of 512 tokens.

Prints CSV per run; then per type the medians, ntx's share of the memory rate (the weights' bytes times tokens per
second over the mean of the plain reads just before and just after it; medians of passes, since some machines' memory
changes from one second to the next), and its ratio to the faster peer, of the medians and as the median of the rounds'
own ratios. --part decode or prefill: that alone, so that more rounds fit. --batches: ntx's own rates of passes of 2 to
64 rows as a share of the prefill's. Use a quiet machine.
"""

import argparse
import csv
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile

SHAPE = ['--layers', '24', '--embd', '3072', '--ff', '8192', '--heads', '24', '--kv', '8', '--ctx', '2048']
KERNEL = {'Q4_K_M': 'Q4_K', 'Q5_K_M': 'Q5_K'}
BATCHES = [2, 4, 8, 16, 32, 64]


def output(*cmd):
    r = subprocess.run(cmd, capture_output=True, text=True)
    if r.returncode:
        sys.exit('%s: status %d: %s' % (shlex.join(cmd), r.returncode, r.stderr.strip()[-500:]))
    return r.stdout


def memory(a, kind):
    rows = csv.DictReader(
        output(
            a.build + '/bench/bench_kernels',
            '-t',
            KERNEL.get(kind, kind),
            '-j',
            str(a.threads),
            '-r',
            '1',
            '-n',
            '4096',
            '-s',
            '0.5',
        ).splitlines()
    )
    return max(float(r['read_p50_gb_s']) for r in rows)


def ntx(a, model, prompt, tokens):
    if not prompt and not tokens:
        return 0, 0
    prompt, tokens = max(prompt, 1), max(tokens, 1)
    j = json.loads(
        output(
            a.build + '/bin/ntx',
            'bench',
            model,
            '-p',
            str(prompt),
            '-n',
            str(tokens),
            '-r',
            '3',
            '--ctx',
            '1024',
            '--threads',
            str(a.threads),
            '--json',
        ).splitlines()[-1]
    )
    return j['prefill_tok_s'], j['decode_tok_s']


def peer(a, cmd, model):
    rows = list(
        csv.DictReader(
            output(
                *shlex.split(cmd),
                '-m',
                model,
                '-p',
                str(a.prompt if a.part != 'decode' else 0),
                '-n',
                str(a.tokens if a.part != 'prefill' else 0),
                '-t',
                str(a.threads),
                '-r',
                '1',
                '-o',
                'csv',
            ).splitlines()
        )
    )
    rate = {('p' if int(r['n_prompt']) else 'n'): float(r['avg_ts']) for r in rows}
    return rate.get('p', 0), rate.get('n', 0)


def report(a, kind, size, read, rates, batches):
    med = {who: [statistics.median(v) for v in zip(*runs)] for who, runs in rates.items()}
    best = [max((v[k] for who, v in med.items() if who != 'ntx'), default=0) for k in (0, 1)]
    share = statistics.median(run[1] * size / 1e9 / r for run, r in zip(rates['ntx'], read))
    line = '# %s: memory %.1f GB/s; ntx decodes at %.1f GB/s (%.2f of it)' % (
        kind,
        statistics.median(read),
        med['ntx'][1] * size / 1e9,
        share,
    )
    for k, part in ((1, 'decode'), (0, 'prefill')):
        if best[k]:
            paired = statistics.median(
                n[k] / max(runs[i][k] for who, runs in rates.items() if who != 'ntx')
                for i, n in enumerate(rates['ntx'])
            )
            line += '; %s over the faster peer: %.2f (round by round %.2f)' % (part, med['ntx'][k] / best[k], paired)
    print(line)
    if batches:
        print(
            '# %s: row rate of a pass as a share of the prefill\'s: %s'
            % (kind, ', '.join('%d rows %.2f' % (n, statistics.median(v) / med['ntx'][0]) for n, v in batches.items())),
            flush=True,
        )


def measure(a, kind, model):
    if not os.path.exists(model):
        output(
            a.build + '/bin/ntx-mkmodel',
            *SHAPE,
            '--type',
            kind,
            *(['--vocab-from', a.vocab_from] if a.vocab_from else []),
            model,
        )
    if a.make_only:
        return
    peers = dict(p.split('=', 1) for p in a.peer)
    read, rates, batches = [], {who: [] for who in ['ntx', *peers]}, {}
    for r in range(a.rounds):
        read.append(memory(a, kind))
        rates['ntx'].append(
            (
                ntx(a, model, a.prompt if a.part != 'decode' else 0, 0)[0],
                ntx(a, model, 0, a.tokens if a.part != 'prefill' else 0)[1],
            )
        )
        read[-1] = (read[-1] + memory(a, kind)) / 2
        for who, cmd in peers.items():
            rates[who].append(peer(a, cmd, model))
        for who in rates:
            print('%s,%s,%d,%.2f,%.2f,%.2f' % (kind, who, r + 1, *rates[who][-1], read[-1]), flush=True)
        for n in BATCHES if a.batches else []:
            batches.setdefault(n, []).append(ntx(a, model, n, 1)[0])
    report(a, kind, os.path.getsize(model), read, rates, batches)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument('--types', default='Q4_0,Q8_0,Q4_K_M,Q5_K_M,Q6_K')
    ap.add_argument('--peer', action='append', default=[], metavar='NAME=COMMAND')
    ap.add_argument('--rounds', type=int, default=3)
    ap.add_argument('--prompt', type=int, default=512)
    ap.add_argument('--tokens', type=int, default=24)
    ap.add_argument('--part', choices=['both', 'decode', 'prefill'], default='both')
    ap.add_argument('--threads', type=int, default=os.cpu_count())
    ap.add_argument('--batches', action='store_true')
    ap.add_argument('--build', default='build')
    ap.add_argument('--dir')
    ap.add_argument('--vocab-from')
    ap.add_argument('--model', help='a file to use for the one type named')
    ap.add_argument('--make-only', action='store_true')
    a = ap.parse_args()
    output('cmake', '--build', a.build, '--target', 'bench_kernels')
    print('type,who,round,prefill_tok_s,decode_tok_s,memory_read_gb_s')
    with tempfile.TemporaryDirectory() as tmp:
        for kind in a.types.split(','):
            measure(a, kind, a.model or os.path.join(a.dir or tmp, kind + '.gguf'))


if __name__ == '__main__':
    main()
