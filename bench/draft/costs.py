#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The time of a pass by its rows and budget, as costs.txt has it (policy.c).

    costs.py BIN MODEL NAME=SIZE,NAME=SIZE... [--bytes B] [--rows 1,2,3,4,6,8,12,16,24,32,48,64,96,128] [--passes N]
             [--seconds S] [-- MORE...]

The first prompt of prompts.txt is copied by look-up with as many drafts as make passes of so many rows; a trace has the
time of each pass. SIZE is a value of --ram; the first one should hold the model. --bytes: what a pass multiplies, by
default the file's size. MORE goes to `ntx run`. On standard output a line of costs.txt for each budget: rows and their
times are the first one's, and the drive's rate is that of passes of up to four rows. On standard error, CSV: budget,
rows, passes, ms of the least and the median one, and the larger of the first budget's time and the drive's. No
measurement begins after S seconds.
"""

import argparse, collections, json, os, re, statistics, subprocess, sys, tempfile, time

p = argparse.ArgumentParser()
p.add_argument('bin')
p.add_argument('model')
p.add_argument('budgets')
p.add_argument('--bytes', type=float)
p.add_argument('--rows', default='1,2,3,4,6,8,12,16,24,32,48,64,96,128')
p.add_argument('--passes', type=int, default=8)
p.add_argument('--seconds', type=float, default=1e9)
args = sys.argv[1:]
cut = args.index('--') if '--' in args else len(args)
a, more = p.parse_args(args[:cut]), args[cut + 1 :]
end = time.monotonic() + a.seconds
size = a.bytes or os.path.getsize(a.model)
FEW = 4
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'prompts.txt')) as f:
    prompt = re.split('^== .*\n', f.read(), flags=re.M)[1].strip()


def measure(where, ram, rows):
    """Rows and ns of each pass behind the prompt's, and the bytes that one reads."""
    draft = ['--draft', 'lookup', '--draft-nodes', str(rows - 1)] if rows > 1 else ['--draft', 'off']
    n = min(120, a.passes * rows + 1)
    subprocess.run([a.bin + '/ntx', 'run', a.model, prompt, '--quiet', '--temp', '0', '--ram', ram, '-n', str(n),
                    '--stats', where + '/stats', '--trace', where + '/trace'] + draft + more, check=True,
                   stdout=subprocess.DEVNULL)
    events = json.load(open(where + '/trace'))['traceEvents']
    passes = [(e['args']['rows'], e['dur'] * 1e3) for e in events if re.fullmatch(r'pass \d+', e.get('name', ''))]
    s = json.load(open(where + '/stats'))
    return passes[1:], s['bytes_read_per_token'] * s['accepted_per_pass']


def measure_budget(where, ram):
    of, few = collections.defaultdict(list), []
    for rows in map(int, a.rows.split(',')):
        if time.monotonic() < end:
            passes, read = measure(where, ram, rows)
            few += [(ns, read) for _, ns in passes if rows <= FEW]
            for n, ns in passes:
                of[n].append(ns)
    read, ns = (statistics.median(x[k] for x in few) for k in (1, 0))
    return {n: (len(of[n]), min(of[n]), statistics.median(of[n])) for n in sorted(of)}, read, ns


with tempfile.TemporaryDirectory() as where:
    os.environ['XDG_CACHE_HOME'] = where
    alone = {}
    print('budget,rows,passes,ms_least,ms_median,ms_expected', file=sys.stderr)
    for budget in a.budgets.split(','):
        name, ram = budget.split('=')
        of, read, ns = measure_budget(where, ram)
        alone = alone or of
        for n in of:
            expected = max(alone.get(n, (0, 0, 0))[2], ns if read else 0)
            print('%s,%d,%d,%.2f,%.2f,%.2f' % (name, n, of[n][0], of[n][1] / 1e6, of[n][2] / 1e6, expected / 1e6),
                  file=sys.stderr)
        drive = '%.4g %.3g' % (size - read, read / ns * 1e9) if read else '0 1'
        print('%s %.4g %s %s' % (name, size, drive, ' '.join('%d %.3g' % (n, alone[n][2]) for n in alone)))
