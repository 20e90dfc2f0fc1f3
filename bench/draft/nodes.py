#!/usr/bin/env python3
"""Guesses against bytes and tok/s, whoever guesses: nodes.py BIN MODEL [-n TOKENS] [-r ROUNDS] [--ways off,1,3,7,15,31,63,auto] [--chance 0.8] [-- MORE...]

The text of `--draft off` is guessed by a script that holds with the chance at each depth (infer/guess_script.c). Ways take turns, the other way round in each second round: off, a number of
guesses, or auto, as many as pay; before the rounds auto runs twice, so that what is learned is there. MORE goes to `ntx run`. CSV, medians of the rounds: way, tok/s, ms a pass, tokens a pass,
guesses a pass, MB read a token, and the drive's GB/s; `text` says whether all texts were those without guesses."""
import argparse, json, os, statistics, subprocess, sys, tempfile

p = argparse.ArgumentParser()
p.add_argument('bin')
p.add_argument('model')
p.add_argument('-n', type=int, default=64)
p.add_argument('-r', type=int, default=2)
p.add_argument('--ways', default='off,1,3,7,15,31,63,auto')
p.add_argument('--chance', default='0.8')
args = sys.argv[1:]
cut = args.index('--') if '--' in args else len(args)
a = p.parse_args(args[:cut])
base = [os.path.join(a.bin, 'ntx'), 'run', a.model, 'once upon a time', '--raw', '--ignore-eos', '--quiet', '-n', str(a.n), '--temp', '0.8', '--seed', '3'] + args[cut + 1:]

with tempfile.TemporaryDirectory() as tmp:
    os.environ['XDG_CACHE_HOME'] = tmp
    lines = subprocess.run(base + ['--json', '--draft', 'off'], stdout=subprocess.PIPE, check=True).stdout.decode().splitlines()
    ids = [str(x['token']) for x in map(json.loads, lines) if 'token' in x]
    assert len(ids) == a.n, 'of %d tokens the text has %d' % (a.n, len(ids))
    with open(tmp + '/script', 'w') as f:
        f.write('ntx-script 1\nchance %s\nseed 5\ntext %s\n' % (a.chance, ' '.join(ids)))

    def run(way):
        draft = ['--draft', 'off'] if way == 'off' else ['--draft', tmp + '/script'] + (['--draft-nodes', way] if way.isdigit() else [])
        text = subprocess.run(base + draft + ['--stats', tmp + '/stats'], stdout=subprocess.PIPE, check=True).stdout
        return text, json.load(open(tmp + '/stats'))

    ways = a.ways.split(',')
    want = run('off')[0]
    got, same = {w: [] for w in ways}, True
    for _ in range(2 if 'auto' in ways else 0):
        run('auto')
    for i in range(a.r):
        for w in ways[::-1 if i % 2 else 1]:
            text, s = run(w)
            same &= text == want
            per_pass = s['accepted_per_pass'] / s['decode_tok_s']
            got[w].append((s['decode_tok_s'], 1000 * per_pass, s['accepted_per_pass'], s['draft_nodes_per_pass'], s['bytes_read_per_token'] / 1e6, s['bytes_read_per_token'] * s['decode_tok_s'] / 1e9))
    print('way,tok_s,ms_per_pass,tokens_per_pass,guesses_per_pass,mb_per_token,drive_gb_s,text')
    for w in ways:
        print('%s,%.3f,%.1f,%.2f,%.1f,%.2f,%.2f,%s' % (w, *(statistics.median(x[k] for x in got[w]) for k in range(6)), 'same' if same else 'DIFFERS'), flush=True)
