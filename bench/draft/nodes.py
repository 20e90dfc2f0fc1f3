#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drafts against bytes and tok/s, whatever the drafter.

    nodes.py BIN MODEL [-n TOKENS] [-r ROUNDS] [--ways off,1,3,7,15,31,63,auto] [--chance 0.8] [--plain TOKENS]
             [-- MORE...]

The text of `--draft off`, made in memory without MORE's --ram and --link, is drafted by a script that is right with the
given chance at each depth (computed/draft/draft_script.c). `off` itself may write only the first --plain tokens of it,
since its passes are alike. Ways take turns, in reverse in every second round: off, a number of drafts, or auto, as many
as pay; before the rounds auto runs twice, so that its statistics are there. MORE goes to `ntx run`. CSV, medians of the
rounds: way, tok/s, ms per pass, tokens per pass, drafts per pass, MB read per token, and bytes by time in GB/s; then
the least and the most ms per pass of the rounds; `text` tells whether all texts were those without drafts.
"""

import argparse, json, os, statistics, subprocess, sys, tempfile

p = argparse.ArgumentParser()
p.add_argument('bin')
p.add_argument('model')
p.add_argument('-n', type=int, default=64)
p.add_argument('-r', type=int, default=2)
p.add_argument('--ways', default='off,1,3,7,15,31,63,auto')
p.add_argument('--chance', default='0.8')
p.add_argument('--plain', type=int)
args = sys.argv[1:]
cut = args.index('--') if '--' in args else len(args)
a = p.parse_args(args[:cut])
base = [
    os.path.join(a.bin, 'ntx'),
    'run',
    a.model,
    'once upon a time',
    '--raw',
    '--ignore-eos',
    '--quiet',
    '--temp',
    '0.8',
    '--seed',
    '3',
]
more = args[cut + 1 :]
slow = [i for i, x in enumerate(more) if x in ('--ram', '--link')]
in_memory = [x for i, x in enumerate(more) if i not in slow and i - 1 not in slow]

with tempfile.TemporaryDirectory() as tmp:
    os.environ['XDG_CACHE_HOME'] = tmp
    lines = subprocess.run(
        base + in_memory + ['-n', str(a.n), '--json', '--draft', 'off'], stdout=subprocess.PIPE, check=True
    ).stdout.splitlines()
    ids = [str(x['token']) for x in map(json.loads, lines) if 'token' in x]
    want = ''.join(json.loads(x).get('text', '') for x in lines)
    assert len(ids) == a.n, 'of %d tokens the text has %d' % (a.n, len(ids))
    with open(tmp + '/script', 'w') as f:
        f.write('ntx-script 1\nchance %s\nseed 5\ntext %s\n' % (a.chance, ' '.join(ids)))

    def run(way, n=a.n):
        draft = (
            ['--draft', 'off']
            if way == 'off'
            else ['--draft', tmp + '/script'] + (['--draft-nodes', way] if way.isdigit() else [])
        )
        n = a.plain if way == 'off' and a.plain else n
        text = (
            subprocess.run(
                base + more + draft + ['-n', str(n), '--stats', tmp + '/stats'], stdout=subprocess.PIPE, check=True
            )
            .stdout.decode()
            .rstrip('\n')
        )
        return want.startswith(text) if n < a.n else text == want.rstrip('\n'), json.load(open(tmp + '/stats'))

    ways = a.ways.split(',')
    got, same = {w: [] for w in ways}, True
    for _ in range(2 if 'auto' in ways else 0):
        run('auto', min(a.n, 32))
    for i in range(a.r):
        for w in ways[:: -1 if i % 2 else 1]:
            right, s = run(w)
            same &= right
            per_pass = s['accepted_per_pass'] / s['decode_tok_s']
            got[w].append(
                (
                    s['decode_tok_s'],
                    1000 * per_pass,
                    s['accepted_per_pass'],
                    s['draft_nodes_per_pass'],
                    s['bytes_read_per_token'] / 1e6,
                    s['bytes_read_per_token'] * s['decode_tok_s'] / 1e9,
                )
            )
    print('way,tok_s,ms_per_pass,tokens_per_pass,drafts_per_pass,mb_per_token,drive_gb_s,ms_least,ms_most,text')
    for w in got:
        print(
            '%s,%.3f,%.1f,%.2f,%.1f,%.2f,%.2f,%.1f,%.1f,%s'
            % (
                w,
                *(statistics.median(x[k] for x in got[w]) for k in range(6)),
                *(f(x[1] for x in got[w]) for f in (min, max)),
                'same' if same else 'DIFFERS',
            ),
            flush=True,
        )
