#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""24 texts of Qwen2.5-Coder 1.5B, replayed through the policy of drafts (bench/draft/policy.c), with the times that
passes took: how much of the best fixed number of drafts `--draft auto` reaches. There is no clock, so the figures are
the same on each machine."""

import collections, csv, os, subprocess, sys

here = os.environ['NTX_SOURCE'] + '/bench/draft/'
with open(here + 'texts.txt') as texts:
    out = subprocess.run([os.environ['NTX_BUILD'] + '/bench/bench_policy', here + 'costs.txt'], stdin=texts,
                         stdout=subprocess.PIPE, check=True).stdout.decode()

wrong, counts = [], collections.Counter()
for r in csv.reader(out.splitlines()):
    if r[2] == 'all':
        rates = list(map(float, r[3:]))
        counts['all'] += 1
        if rates[-1] < 0.98 * max(rates[:-1]):  # of the number of drafts that is best for all texts
            wrong.append(r)
    elif r[2] == 'share':
        mean, least, least_of_off, lost = float(r[5]), float(r[6]), float(r[9]), float(r[11])
        counts['share'] += 1
        mean_least, share_least = {'ram': (1.11, 0.8), 't100': (1.01, 0.72)}.get(r[0], (0.95, 0.74))
        reads = r[0] in ('r60', 'r38', 'c35', 't60', 't35')
        if mean < mean_least or least < share_least or least_of_off < 0.975 or lost > (1.05 if reads else 3):  # passes
            wrong.append(r)
for r in wrong:
    print(','.join(r))
if counts != {'all': 16, 'share': 16}:
    print(out)
    sys.exit('bench_policy printed other lines: %s' % counts)
sys.exit(bool(wrong))
