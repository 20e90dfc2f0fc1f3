#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decode of several programs in turn, by seconds.

    bench/turns/turns.py start NAME='COMMAND' ...      each in the background, stopped after its first 40 tokens
    bench/turns/turns.py run SECONDS ROUNDS NAME ...   in turn (A B, B A, ...) each continues for SECONDS: tokens per
                                                       second, medians, ratios to the first
    bench/turns/turns.py end NAME ...

Where memory's rate changes from one moment to the next, runs one after the other tell little. A command writes '[' for
each token, without end, and its processes are its descendants. Their output and process ids are kept in the current
folder. Commands:

    ntx run MODEL 'Once upon a time' --raw --ignore-eos --ctx 16384 -n 16000 --temp 100 --top-k 0 --top-p 1 \\
        --min-p 0 --seed 7 --quiet

(a model of ntx-mkmodel writes names in brackets), `peer MODEL ...` (bench/peer.c) with random tokens, and `read MB`,
plain reads of so many million bytes (read.c). The first quarter of a second of a turn does not count. All programs must
fit in memory together.
"""

import os
import signal
import statistics
import subprocess
import sys
import time

SETTLES = 0.25


class Program:
    def __init__(self, name, command=None):
        self.name, self.rate, self.n = name, [], 0
        if command:
            with open(name + '.tokens', 'wb') as out:
                pid = subprocess.Popen(
                    command, shell=True, stdout=out, stderr=subprocess.DEVNULL, start_new_session=True
                ).pid
            with open(name + '.pid', 'w') as f:
                f.write(str(pid))
        with open(name + '.pid') as f:
            self.pid = int(f.read())
        self.tokens = open(name + '.tokens', 'rb')

    def written(self):
        self.n += self.tokens.read().count(b'[')
        return self.n

    def signal(self, which):
        children = {}
        for d in filter(str.isdigit, os.listdir('/proc')):
            try:
                with open('/proc/%s/stat' % d) as f:
                    children.setdefault(int(f.read().rsplit(')', 1)[1].split()[1]), []).append(int(d))
            except OSError:
                pass
        todo = [self.pid]
        while todo:
            pid = todo.pop()
            todo += children.get(pid, [])
            try:
                os.kill(pid, which)
            except OSError:
                pass

    def turn(self, seconds):
        self.signal(signal.SIGCONT)
        time.sleep(SETTLES)
        n, begin = self.written(), time.time()
        time.sleep(seconds)
        end = time.time()
        self.rate.append((self.written() - n) / (end - begin))
        self.signal(signal.SIGSTOP)


def start(specs):
    for spec in specs:
        p, begin = Program(*spec.split('=', 1)), time.time()
        while p.written() < 40:
            time.sleep(0.1)
            if time.time() - begin > 200:
                sys.exit('%s: no tokens within 200 s' % p.name)
        p.signal(signal.SIGSTOP)


def run(seconds, rounds, names):
    programs = [Program(n) for n in names]
    for r in range(rounds):
        for p in programs if r % 2 == 0 else programs[::-1]:
            p.turn(seconds)
    for p in programs:
        print('%-10s %.1f  (%s)' % (p.name, statistics.median(p.rate), ' '.join('%.0f' % x for x in p.rate)))
    first = programs[0]
    for p in programs[1:]:
        print(
            '%s over %s: %.3f of medians, %.3f of rounds'
            % (
                first.name,
                p.name,
                statistics.median(first.rate) / statistics.median(p.rate),
                statistics.median(a / b for a, b in zip(first.rate, p.rate)),
            )
        )


def end(names):
    for p in map(Program, names):
        p.signal(signal.SIGCONT)
        p.signal(signal.SIGTERM)
        time.sleep(0.5)
        p.signal(signal.SIGKILL)
        for kind in ('.tokens', '.pid'):
            os.unlink(p.name + kind)


def main():
    how, args = ''.join(sys.argv[1:2]), sys.argv[2:]
    if how == 'start' and args:
        start(args)
    elif how == 'run' and len(args) > 2:
        run(float(args[0]), int(args[1]), args[2:])
    elif how == 'end' and args:
        end(args)
    else:
        sys.exit(__doc__)


if __name__ == '__main__':
    main()
