#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whether drafting is ever slower than plain decode.

    slower.py BIN MODEL WAY [-n TOKENS] [-r ROUNDS] [-l LOADS] [--temp T] [--fresh] [-- MORE...]

Three services are in memory at once: `--draft off`, `--draft WAY` (auto, lookup, a file) and `--draft off` once more,
which shows the noise. A round is one request to each, of the same text, in an order that changes with each round, so
that changes of the machine over seconds affect all three. MORE goes to `ntx up`. All of it is repeated for each of
LOADS loads. Statistics of drafts are kept from load to load, in a directory of their own, and two rounds before the
others do not count; with --fresh nothing is kept and all rounds count, so that the cost of learning is included.

Prints a line: median ms per token of off; the ratio of drafting to the mean of both offs, and of the second off to the
first, each as the median of the rounds with a 90 % bootstrap interval (whole rounds, of whole loads); the ratio of CPU
seconds (ntx-computed and its two workers); MB read per token of off and drafting; tokens and drafts per pass; whether
all texts were the same.
"""

import argparse, json, os, random, signal, statistics, subprocess, sys, tempfile, time
from measure import stories

p = argparse.ArgumentParser()
p.add_argument('bin')
p.add_argument('model')
p.add_argument('draft', metavar='way')
p.add_argument('-n', type=int, default=300)
p.add_argument('-r', type=int, default=10)
p.add_argument('-l', type=int, default=2)
p.add_argument('--temp', default='0.8')
p.add_argument('--fresh', action='store_true')
args = sys.argv[1:]
cut = args.index('--') if '--' in args else len(args)
a = p.parse_args(args[:cut])
a.more = args[cut + 1 :]
NAMES = ('off', 'way', 'again')


def cpu_s(up):
    """Of the service's processes: up's children."""
    ticks = 0
    for pid in open('/proc/%d/task/%d/children' % (up.pid, up.pid)).read().split():
        ticks += sum(map(int, open('/proc/%s/stat' % pid).read().rsplit(')', 1)[1].split()[11:13]))
    return ticks / os.sysconf('SC_CLK_TCK')


def start(where, name):
    env = dict(os.environ, NTX_RUNTIME=os.path.join(where, name))
    os.mkdir(env['NTX_RUNTIME'], 0o700)
    draft = a.draft if name == 'way' else 'off'
    up = subprocess.Popen(
        [a.bin + '/ntx', 'up', a.model, '--quiet', '--draft', draft] + a.more,
        env=env,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while subprocess.run(
        [a.bin + '/ntx', 'generate', 'a', '--raw', '--quiet', '-n', '1'],
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ).returncode:
        if up.poll() is not None:
            sys.exit('ntx up ended with %d' % up.returncode)
        time.sleep(0.1)
    return up, env


def ask(env, prompt, seed):
    with tempfile.NamedTemporaryFile() as f:
        text = subprocess.run(
            [
                a.bin + '/ntx',
                'generate',
                prompt,
                '--raw',
                '--ignore-eos',
                '--quiet',
                '-n',
                str(a.n),
                '--temp',
                a.temp,
                '--seed',
                str(seed),
                '--stats',
                f.name,
            ],
            env=env,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        return text, json.load(open(f.name))


def load(number, out, cpu):
    """All rounds of a load: ms a token of each go to out, CPU seconds to cpu."""
    same = True
    with tempfile.TemporaryDirectory() as where:
        ups = {}
        try:
            for name in NAMES[number % 3 :] + NAMES[: number % 3]:
                ups[name] = start(where, name)
            for i, prompt in zip(range(a.r + 2), stories()):
                counts, texts = a.fresh or i > 1, set()
                for name in (NAMES[i % 3 :] + NAMES[: i % 3])[:: 1 if i % 2 else -1]:
                    before = cpu_s(ups[name][0])
                    text, s = ask(ups[name][1], prompt, number * 100 + i + 1)
                    texts.add(text)
                    if counts:
                        out[name].append(
                            (
                                1000 / s['decode_tok_s'],
                                s['accepted_per_pass'],
                                s['draft_nodes_per_pass'],
                                s['bytes_read_per_token'] / 1e6,
                                number,
                            )
                        )
                        cpu[name] += cpu_s(ups[name][0]) - before
                same &= len(texts) == 1
        finally:
            for up, _ in ups.values():
                up.send_signal(signal.SIGTERM)
            for up, _ in ups.values():
                up.wait()
    return same


def median_of(ratios):
    """Of (load, ratio) of each round: loads are drawn again, and of each its rounds."""
    loads = [[x for n, x in ratios if n == number] for number in sorted({n for n, _ in ratios})]
    draws = sorted(
        statistics.median(x for of in random.choices(loads, k=len(loads)) for x in random.choices(of, k=len(of)))
        for _ in range(2000)
    )
    return '%.3f (%.3f to %.3f)' % (statistics.median(x for _, x in ratios), draws[100], draws[1900])


out, cpu, same = {n: [] for n in NAMES}, {n: 0 for n in NAMES}, True
with tempfile.TemporaryDirectory() as cache:
    for number in range(a.l):
        os.environ['XDG_CACHE_HOME'] = os.path.join(cache, str(number) if a.fresh else 'kept')
        os.makedirs(os.environ['XDG_CACHE_HOME'], exist_ok=True)
        same &= load(number, out, cpu)
ms = {n: [x[0] for x in out[n]] for n in NAMES}
mean = lambda name, k: statistics.mean(x[k] for x in out[name])
way = median_of([(x[4], 2 * x[0] / (y + z)) for x, y, z in zip(out['way'], ms['off'], ms['again'])])
again = median_of([(x[4], x[0] / y) for x, y in zip(out['again'], ms['off'])])
print(
    '%s %s: off %.3f ms; drafts %s, CPU %.3f; off again %s, CPU %.3f; MB read a token %.2f and %.2f; %.2f tokens a'
    ' pass of %.2f drafts; %d rounds in %d loads; texts %s'
    % (
        os.path.basename(a.model),
        ' '.join([a.draft] + a.more),
        statistics.median(ms['off']),
        way,
        2 * cpu['way'] / (cpu['off'] + cpu['again']),
        again,
        cpu['again'] / cpu['off'],
        mean('off', 3),
        mean('way', 3),
        mean('way', 1),
        mean('way', 2),
        len(out['way']),
        a.l,
        'the same' if same else 'DIFFER',
    ),
    flush=True,
)
