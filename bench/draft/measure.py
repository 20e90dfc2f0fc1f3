#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens per pass, and time per token, with and without drafts.

    measure.py BIN [-n TOKENS] [-p PROMPTS] [--tasks stories,questions] [--temps 0,0.8] [--ways off,15,63,auto]
               [-- MORE...]
    measure.py --prompts [-p PROMPTS] [--tasks stories]     prints the prompts, a zero byte after each (bench_ideal)

Stories begin with the first two sentences of a held-out story; questions are held-out ones and what the model writes
after them. A way is off, auto (as many drafts as pay), a number of drafts, lookup, both (lookup and the drafter, as
many as pay), or default (what `--draft auto` does); MORE goes to `ntx run`. The ways take turns, prompt by prompt, in
reverse for every second one. CSV: task, temp, way, tokens per pass, drafts per pass, ms per token, MB read per token,
and s waited for the drafter per s of writing; `text` tells whether all texts were those without drafts.
"""

import argparse, json, os, re, subprocess, sys, tempfile

here = os.path.dirname(os.path.abspath(__file__))
models = os.path.join(here, '..', '..', 'models')


def stories():
    for story in open(os.path.join(models, 'held-out.txt')).read().split('\n\n'):
        s = re.match(r'\s*([^.]*\.[^.]*\.)', story)
        if s and len(story) > 300:
            yield s.group(1)


def questions():
    for line in open(os.path.join(models, 'held-out.jsonl')):
        yield json.loads(line)['prompt']


TASKS = {'stories': stories, 'questions': questions}


def run(a, prompt, temp, way, seed):
    name = {'lookup': 'lookup', 'default': 'auto', 'both': 'lookup,' + a.draft}.get(way, a.draft)
    draft = (
        ['--draft', 'off'] if way == 'off' else ['--draft', name] + (['--draft-nodes', way] if way.isdigit() else [])
    )
    with tempfile.NamedTemporaryFile() as f:
        text = subprocess.run(
            [
                os.path.join(a.bin, 'ntx'),
                'run',
                a.model,
                prompt,
                '--raw',
                '--ignore-eos',
                '--quiet',
                '-n',
                str(a.n),
                '--temp',
                temp,
                '--seed',
                str(seed),
                '--stats',
                f.name,
            ]
            + draft
            + a.more,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        return text, json.load(open(f.name))


def main():
    p = argparse.ArgumentParser()
    p.add_argument('bin', nargs='?')
    p.add_argument('--prompts', action='store_true')
    p.add_argument('-n', type=int, default=100)
    p.add_argument('-p', type=int, default=40)
    p.add_argument('--tasks', default='stories,questions')
    p.add_argument('--temps', default='0,0.8')
    p.add_argument('--ways', default='off,15,63,auto')
    p.add_argument('--model', default=os.path.join(models, 'demo.gguf'))
    p.add_argument('--draft', default=os.path.join(models, 'demo-draft.gguf'))
    args = sys.argv[1:]
    cut = args.index('--') if '--' in args else len(args)
    a = p.parse_args(args[:cut])
    a.more = args[cut + 1 :]
    if a.prompts:
        for task in a.tasks.split(','):
            for x, _ in zip(TASKS[task](), range(a.p)):
                print(x, end='\0')
        sys.exit()
    print('task,temp,way,tokens_per_pass,drafts_per_pass,ms_per_token,mb_per_token,waited,text', flush=True)
    for task in a.tasks.split(','):
        prompts = [x for x, _ in zip(TASKS[task](), range(a.p))]
        for temp in a.temps.split(','):
            sums = {w: [0, 0, 0, 0, 0, 0] for w in a.ways.split(',')}
            same = {w: True for w in sums}
            for i, prompt in enumerate(prompts):
                texts = {}
                for w in list(sums)[:: -1 if i % 2 else 1]:
                    texts[w], s = run(a, prompt, temp, w, i + 1)
                    tokens = s['generated_tokens'] - 1
                    passes = tokens / s['accepted_per_pass']
                    for k, x in enumerate(
                        (
                            tokens,
                            passes,
                            passes * s['draft_nodes_per_pass'],
                            tokens / s['decode_tok_s'],
                            s['draft_s'],
                            tokens * s['bytes_read_per_token'],
                        )
                    ):
                        sums[w][k] += x
                for w in sums:
                    same[w] &= texts[w] == texts[next(iter(sums))]
            for w, (tokens, passes, nodes, seconds, waited, read) in sums.items():
                print(
                    '%s,%s,%s,%.2f,%.1f,%.3f,%.2f,%.3f,%s'
                    % (
                        task,
                        temp,
                        w,
                        tokens / passes,
                        nodes / passes,
                        1000 * seconds / tokens,
                        read / tokens / 1e6,
                        waited / seconds,
                        'same' if same[w] else 'DIFFERS',
                    ),
                    flush=True,
                )


if __name__ == '__main__':
    main()
