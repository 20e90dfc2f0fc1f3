#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Agents at work: ntx and llama-server on the same sessions. CSV.

    bench/agents.py MODEL.gguf [--llama LLAMA_SERVER] [--agents 8] [--turns 20] [--tokens 12] [--order ABBA]

Each agent has a system prompt (the rules and tools that all share, and its own task), and brings all that was said
before with each turn, the answers as they came; a turn adds a tool's result of about 40 tokens, and gets an answer of
--tokens tokens, streamed over /v1/chat/completions, greedy. All agents work at once, and an agent asks again as soon as
it has its answer. The servers run one after the other (A: ntx, B: llama-server), each with 2 threads, a context for
each agent, and all of the model in memory.

A line for each run: time to the first token (p50, p99), the whole time, and the processors' time of the server with its
start, which matters on a machine that is shared, in s; prompt tokens in all; the share of
them that was not computed again, and that share as an ideal cache gives it: all but the new part of each turn, and the
shared rules of all agents but the first. Without --llama only ntx runs. NTX_BIN: build/bin.
"""

import argparse
import http.client
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

BIN = os.environ.get('NTX_BIN') or sys.exit('set NTX_BIN to build/bin')
CTX, THREADS = 3072, 2
RULES = 'You are an agent that repairs programs. You work step by step, and call one tool at a time. ' + ' '.join(
    'Tool %s takes a path and %s, and answers with %s.' % rule
    for rule in (
        ('read', 'a range of lines', 'the text of these lines with their numbers'),
        ('write', 'the new text of the file', 'the number of bytes that were written'),
        ('search', 'a word or an expression', 'all lines of the folder that contain it'),
        ('run', 'the arguments of a command', 'what the command wrote and its exit code'),
        ('list', 'a depth', 'the names, sizes and times of the files in that folder'),
        ('patch', 'a difference in unified form', 'the hunks that could not be applied'),
        ('ask', 'a question', 'what the person in front of the machine said'),
        ('done', 'a summary', 'nothing, since the work is over'),
    )
)
WORDS = 'parser socket table cache index queue timer buffer thread lock file token block frame route shard'.split()


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


class Server:
    def __init__(self, who, args, tmp):
        self.who, self.args, self.tmp, self.port = who, args, tmp, free_port()

    def command(self):
        a, where = self.args, ['127.0.0.1', str(self.port)]
        if self.who == 'A':
            settings = ['--ctx', str(CTX), '--sessions', str(a.agents), '--threads', str(THREADS), '--ram', a.ram]
            return [os.path.join(BIN, 'ntx'), 'serve', a.model, '--listen', ':'.join(where), *settings]
        settings = ['-c', str(CTX * a.agents), '-np', str(a.agents), '-t', str(THREADS), '-tb', str(THREADS)]
        return [a.llama, '-m', a.model, '--host', where[0], '--port', where[1], *settings, '--no-webui']

    def __enter__(self):
        self.log = open(os.path.join(self.tmp, self.who + '.log'), 'ab')
        env = dict(os.environ, NTX_RUNTIME=os.path.join(self.tmp, 'run'), XDG_RUNTIME_DIR='')
        self.child = subprocess.Popen(
            self.command(), stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, env=env
        )
        for _ in range(3000):
            if self.child.poll() is not None:
                sys.exit('%s ended: %s' % (self.command()[0], open(self.log.name).read()[-2000:]))
            try:
                c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=5)
                c.request('GET', '/health')
                if c.getresponse().status == 200:
                    return self
            except OSError:
                pass
            time.sleep(0.02)
        sys.exit('%s does not answer' % self.command()[0])

    def __exit__(self, *_):
        self.child.terminate()
        self.child.wait(60)


class Agent(threading.Thread):
    def __init__(self, port, i, args):
        super().__init__()
        self.port, self.i, self.args, self.turns, self.error = port, i, args, [], None
        task = 'Task %d: the %s of program %d loses a %s.' % (i, WORDS[i % 16], 17 * i + 3, WORDS[(5 * i + 2) % 16])
        self.messages = [{'role': 'system', 'content': RULES + ' ' + task}]

    def run(self):
        try:
            for turn in range(self.args.turns):
                self.turn(turn)
        except (OSError, ValueError, KeyError) as e:
            self.error = e

    def turn(self, turn):
        lines = ' '.join('%d: %s %s;' % (turn * 9 + k, WORDS[(self.i + turn * k) % 16], WORDS[k]) for k in range(5))
        self.messages.append({'role': 'user', 'content': 'Result %d: %s What now?' % (turn, lines)})
        body = {
            'messages': self.messages,
            'max_tokens': self.args.tokens,
            'temperature': 0,
            'ignore_eos': True,
            'stream': True,
            'stream_options': {'include_usage': True},
        }
        begin, first, text, prompt, cached = time.monotonic(), None, '', 0, 0
        c = http.client.HTTPConnection('127.0.0.1', self.port, timeout=600)
        c.request('POST', '/v1/chat/completions', json.dumps(body), {'Content-Type': 'application/json'})
        r = c.getresponse()
        if r.status != 200:
            raise ValueError('%d: %r' % (r.status, r.read()[:300]))
        for line in r:
            if not line.startswith(b'data: {'):
                continue
            j = json.loads(line[6:])
            said = j['choices'][0]['delta'].get('content') if j.get('choices') else None
            if said:
                first = first or time.monotonic() - begin
                text += said
            usage = j.get('usage') or {}
            prompt = usage.get('prompt_tokens', prompt)
            cached = (usage.get('prompt_tokens_details') or {}).get('cached_tokens', cached)
            cached = j.get('timings', {}).get('cache_n', cached)
        c.close()
        self.turns.append((first or time.monotonic() - begin, prompt, cached))
        self.messages.append({'role': 'assistant', 'content': text})


def cpu_seconds():
    """Of the servers that have ended, and of their own processes."""
    use = resource.getrusage(resource.RUSAGE_CHILDREN)
    return use.ru_utime + use.ru_stime


def percentile(values, share):
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def ideal(agents, tokens):
    """The share of prompt tokens that need not be computed: all that was there in the turn before, and the rules."""
    whole = sum(t[1] for a in agents for t in a.turns)
    said = [''.join(m['content'] for m in a.messages[:2]) for a in agents]
    rules = len(RULES) * min(a.turns[0][1] / len(text) for a, text in zip(agents, said))  # as letters, so tokens
    before = sum(t[1] + tokens - 1 for a in agents for t in a.turns[:-1])
    known = before + rules * (len(agents) - 1)
    return known / whole


def measure(who, args, tmp):
    cpu = cpu_seconds()
    with Server(who, args, tmp) as s:
        agents = [Agent(s.port, i, args) for i in range(args.agents)]
        begin = time.monotonic()
        for a in agents:
            a.start()
        for a in agents:
            a.join()
        seconds = time.monotonic() - begin
    errors = [str(a.error) for a in agents if a.error]
    if errors:
        sys.exit('%s: %s' % (who, errors[0]))
    turns = [t for a in agents for t in a.turns]
    first = [t[0] for t in turns]
    prompt, cached = sum(t[1] for t in turns), sum(t[2] for t in turns)
    print(
        '%s,%.3f,%.3f,%.1f,%.1f,%d,%.4f,%.4f'
        % (
            'ntx' if who == 'A' else 'llama-server',
            statistics.median(first),
            percentile(first, 0.99),
            seconds,
            cpu_seconds() - cpu,
            prompt,
            cached / prompt,
            ideal(agents, args.tokens),
        ),
        flush=True,
    )


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('model')
    p.add_argument('--llama')
    p.add_argument('--agents', type=int, default=8)
    p.add_argument('--turns', type=int, default=20)
    p.add_argument('--tokens', type=int, default=12)
    p.add_argument('--order', default='AB')
    p.add_argument('--ram', default='2G')
    args = p.parse_args()
    print('server,ttft_p50_s,ttft_p99_s,total_s,cpu_s,prompt_tokens,cached_share,ideal_share', flush=True)
    with tempfile.TemporaryDirectory(prefix='ntx-agents-') as tmp:
        for who in args.order if args.llama else 'A':
            measure(who, args, tmp)


if __name__ == '__main__':
    main()
