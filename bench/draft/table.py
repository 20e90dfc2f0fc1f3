#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`--draft auto` beside each fixed choice of drafts, by prompt.

    table.py BIN MODEL CSV [--ram 400M,640M,2G] [--temps 0,0.8] [--ways off,lookup:8,small.gguf:16,auto]
             [--only copy-text,json] [-n TOKENS] [--plain TOKENS] [--seconds S] [-- MORE...]
    table.py --sum CSV...

A way is a value of --draft, and behind a colon a number for --draft-nodes; MODEL=FILE before it is another file of the
same model (one of `ntx pack --planes`). The services of all ways are in memory at once, so the machine needs as much.
Each prompt of prompts.txt is asked of all of them in turn, in reverse for every second one; `off` writes only the first
--plain tokens, since its passes are alike. Statistics of drafts are empty when a service starts. Rows that CSV has
already are not measured again, and no prompt begins after S seconds: so the table can be made in parts. MORE goes to
`ntx up`.

At the end each service's plan is asked, which knows how many drafts held: rows of the prompt "plan".

--sum prints for each budget and temperature, by prompt: tokens a second of off and the best way that is not auto, and
auto's in parts of both; then the medians and the least. Behind it, by way, the plan's rate, and that of all prompts
together, with as many tokens of each.
"""

import argparse, csv, json, os, re, signal, statistics, subprocess, sys, tempfile, time

HEAD = ['ram', 'temp', 'prompt', 'way', 'tok_s', 'tokens_per_pass', 'drafts_per_pass', 'mb_per_token', 'n', 'same']


def prompts(path):
    for part in re.split('^== ', open(path).read(), flags=re.M)[1:]:
        name, text = part.split('\n', 1)
        yield name, text.strip()


def rows_of(paths):
    return [r for path in paths if os.path.exists(path) for r in csv.DictReader(open(path))]


def print_sums(paths):
    rows = rows_of(paths)
    for key in sorted({(r['ram'], r['temp']) for r in rows if r['prompt'] != 'plan'}):
        print('%s, T %s: prompt, off, best, auto over off, auto over best' % key)
        over_off, over_best = [], []
        for name in dict.fromkeys(r['prompt'] for r in rows):
            of = {r['way']: float(r['tok_s']) for r in rows if (r['ram'], r['temp'], r['prompt']) == key + (name,)}
            if 'auto' not in of or 'off' not in of:
                continue
            best = max((w for w in of if w != 'auto'), key=of.get)
            over_off.append(of['auto'] / of['off'])
            over_best.append(of['auto'] / of[best])
            print('%-14s %6.2f  %-20s %6.2f  %5.2f  %5.2f'
                  % (name, of['off'], best, of[best], over_off[-1], over_best[-1]))
        median = statistics.median
        if over_off:
            print('%-14s of off: median %.2f, least %.2f; of the best: median %.2f, least %.2f\n'
                  % ('all', median(over_off), min(over_off), median(over_best), min(over_best)))
        print_plans([r for r in rows if (r['ram'], r['temp']) == key], [r for r in rows if r['ram'] == key[0]])


def print_plans(rows, of_ram):
    for plan in of_ram:
        rates = [float(r['tok_s']) for r in rows if r['way'] == plan['way'] and r['prompt'] != 'plan']
        if plan['prompt'] == 'plan' and rates:
            rate, predicted = statistics.harmonic_mean(rates), float(plan['tok_s'])
            print('%-40s plan %6.2f, measured %6.2f: %.2f' % (plan['way'], predicted, rate, rate / predicted))


class Service:
    def __init__(self, a, more, ram, way, where):
        model, _, rest = way.rpartition('=')
        draft, _, nodes = rest.partition(':')
        self.bin, self.way = a.bin + '/ntx', way
        self.how = [model or a.model, '--ram', ram, '--draft', draft] + more
        self.how += ['--draft-nodes', nodes] if nodes else []
        self.env = dict(os.environ, NTX_RUNTIME=where + '/run', XDG_CACHE_HOME=where + '/cache')
        os.makedirs(where + '/run', 0o700)
        os.makedirs(where + '/cache/ntx')
        if a.profile:
            os.link(a.profile, where + '/cache/ntx/profile.json')
        self.up = subprocess.Popen(
            [self.bin, 'up', '--quiet'] + self.how,
            env=self.env, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )

    def wait(self):
        while self.ask('a', 1, '0') is None:
            if self.up.poll() is not None:
                sys.exit('%s: ntx up ended with %d' % (self.way, self.up.returncode))
            time.sleep(0.1)

    def ask(self, prompt, n, temp):
        """The text and its statistics; None: no answer."""
        with tempfile.NamedTemporaryFile() as f:
            r = subprocess.run(
                [self.bin, 'generate', prompt, '--ignore-eos', '--quiet', '-n', str(n), '--temp', temp, '--seed', '3',
                 '--stats', f.name],
                env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            )
            return None if r.returncode else (r.stdout.decode(errors='replace').rstrip('\n'), json.load(open(f.name)))

    def end(self):
        self.up.send_signal(signal.SIGTERM)
        self.up.wait()

    def plan(self):
        """Tokens a second, tokens a pass and drafts a pass, as `ntx plan` predicts them."""
        r = subprocess.run([self.bin, 'plan', '--json'] + self.how, env=self.env, stdout=subprocess.PIPE, check=True)
        j = json.loads(r.stdout)
        d = j.get('draft') or {}
        return [d.get('tok_s') or j['predicted_tok_s'], d.get('tokens_per_pass', 1), d.get('nodes', 0)]


def measure(a, services, ram, temp, name, prompt, order, out):
    texts = {}
    for s in services[::order]:
        n = a.plain if s.way == 'off' and a.plain else a.n
        text, stats = s.ask(prompt, n, temp)
        texts[s.way] = text
        least = min(map(len, texts.values()))
        same = len({t[:least] for t in texts.values()}) == 1
        out.writerow([ram, temp, name, s.way, '%.3f' % stats['decode_tok_s'], '%.2f' % stats['accepted_per_pass'],
                      '%.1f' % stats['draft_nodes_per_pass'], '%.1f' % (stats['bytes_read_per_token'] / 1e6), n,
                      'same' if same else 'DIFFERS'])


def main():
    p = argparse.ArgumentParser()
    p.add_argument('bin')
    p.add_argument('model')
    p.add_argument('csv')
    p.add_argument('--ram', default='400M,640M,2G')
    p.add_argument('--temps', default='0,0.8')
    p.add_argument('--ways', default='off,lookup:4,lookup:8,lookup:16,lookup:32,lookup:63,auto')
    p.add_argument('--only')
    p.add_argument('-n', type=int, default=96)
    p.add_argument('--plain', type=int, default=0)
    p.add_argument('--seconds', type=float, default=1e9)
    p.add_argument('--profile', help="of `ntx doctor`, for the services' plans")
    args = sys.argv[1:]
    if args[:1] == ['--sum']:
        return print_sums(args[1:])
    cut = args.index('--') if '--' in args else len(args)
    a, more = p.parse_args(args[:cut]), args[cut + 1 :]
    end = time.monotonic() + a.seconds
    done = {(r['ram'], r['temp'], r['prompt']) for r in rows_of([a.csv])}
    texts = [(n, t) for n, t in prompts(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'prompts.txt'))
             if not a.only or n in a.only.split(',')]
    with open(a.csv, 'a', newline='') as f:
        out = csv.writer(f, lineterminator='\n')
        if not f.tell():
            out.writerow(HEAD)
        for ram in a.ram.split(','):
            left = [(t, n, text) for t in a.temps.split(',') for n, text in texts if (ram, t, n) not in done]
            if not left or time.monotonic() > end:
                continue
            with tempfile.TemporaryDirectory() as where:
                services = []
                try:
                    for i, way in enumerate(a.ways.split(',')):
                        services.append(Service(a, more, ram, way, '%s/%u' % (where, i)))
                        services[-1].wait()
                    for i, (temp, name, prompt) in enumerate(left):
                        if time.monotonic() > end:
                            break
                        measure(a, services, ram, temp, name, prompt, -1 if i % 2 else 1, out)
                        f.flush()
                finally:
                    for s in services:
                        s.end()
                for s in services:
                    out.writerow([ram, '', 'plan', s.way] + s.plan() + ['', '', ''])


main()
