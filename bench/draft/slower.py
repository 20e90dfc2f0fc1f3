#!/usr/bin/env python3
"""Whether guessing is ever slower than not: slower.py BIN MODEL WAY [-n TOKENS] [-r ROUNDS] [--temp T] [-- MORE...]

`--draft off` and `--draft WAY` (auto, lookup, a file) in turn, A B B A, a held-out story's beginning for each round; MORE goes to `ntx run`. What is learned is kept from run to run, in a directory
of its own, and two rounds come before those that count. Prints a line: ms a token of each at the median, the median of the rounds' ratios (WAY over off) with its quartiles, tokens per
pass at the median, and whether all texts were the same."""
import argparse, json, os, statistics, subprocess, sys, tempfile
from measure import stories, run

p = argparse.ArgumentParser()
p.add_argument('bin')
p.add_argument('model')
p.add_argument('draft', metavar='way')
p.add_argument('-n', type=int, default=400)
p.add_argument('-r', type=int, default=10)
p.add_argument('--temp', default='0.8')
args = sys.argv[1:]
cut = args.index('--') if '--' in args else len(args)
a = p.parse_args(args[:cut])
a.more = args[cut + 1:]
ratios, ms, passes, same = [], {'off': [], 'way': []}, [], True
with tempfile.TemporaryDirectory() as cache:
    os.environ['XDG_CACHE_HOME'] = cache
    for i, prompt in zip(range(a.r + 2), stories()):
        took, texts = {'off': 0, 'way': 0}, set()
        for way in ('off', 'way', 'way', 'off'):
            text, s = run(a, prompt, a.temp, way, i + 1)
            took[way] += 500 / s['decode_tok_s']
            texts.add(text)
            if way == 'way' and i > 1:
                passes.append(s['accepted_per_pass'])
        same &= len(texts) == 1
        if i > 1:
            ratios.append(took['way'] / took['off'])
            for way in took:
                ms[way].append(took[way])
q = statistics.quantiles(ratios, n=4)
print('%s %s: off %.3f ms, guesses %.3f ms; ratio %.3f (%.3f to %.3f); %.2f tokens a pass; texts %s' % (os.path.basename(a.model), ' '.join([a.draft] + a.more), statistics.median(ms['off']),
      statistics.median(ms['way']), statistics.median(ratios), q[0], q[2], statistics.median(passes), 'the same' if same else 'DIFFER'), flush=True)
