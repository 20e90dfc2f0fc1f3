#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tokens per pass where a text is copied with one name changed, by lookup alone: repeat.py BIN [NODES]

Twenty held-out stories. Each is in the prompt twice, and the answer is the story with its first name changed: the demo
model does not copy by itself, so a grammar of that one text forces it. CSV: prompt, tokens, tokens per pass, whether
the text was that without drafts; then the mean.
"""

import json, os, re, subprocess, sys, tempfile

models = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'models')
NO_NAMES = {'Once', 'One', 'The', 'There', 'She', 'They', 'But', 'Then', 'And'}


def texts():
    for story in open(os.path.join(models, 'held-out.txt')).read().split('\n\n'):
        story = re.sub(r'\s+', ' ', story).strip()
        if len(story) > 300:
            text = re.sub(r"[^A-Za-z0-9 .,!?']", '', story)[:350].rsplit(' ', 1)[0]
            name = next((w for w in re.findall(r'\b[A-Z][a-z]{2,}\b', text) if w not in NO_NAMES), None)
            yield text, text.replace(name, 'Anna') if name else text


def run(text, changed, more):
    with tempfile.TemporaryDirectory() as d:
        with open(os.path.join(d, 'grammar'), 'w') as f:
            f.write('root ::= ' + json.dumps(' ' + changed))
        out = subprocess.run(
            [
                os.path.join(sys.argv[1], 'ntx'),
                'run',
                os.path.join(models, 'demo.gguf'),
                text + '\n\n' + text + '\n\n',
                '--raw',
                '--quiet',
                '-n',
                '200',
                '--temp',
                '0',
                '--ctx',
                '1024',
                '--grammar',
                os.path.join(d, 'grammar'),
                '--stats',
                os.path.join(d, 'stats'),
            ]
            + more,
            stdout=subprocess.PIPE,
            check=True,
        ).stdout
        return out, json.load(open(os.path.join(d, 'stats')))


nodes = sys.argv[2] if len(sys.argv) > 2 else '15'
rates = []
print('prompt,tokens,tokens_per_pass,text')
for i, (text, changed) in zip(range(20), texts()):
    plain, _ = run(text, changed, ['--draft', 'off'])
    drafts, s = run(text, changed, ['--draft', 'lookup', '--draft-nodes', nodes])
    rates.append(s['accepted_per_pass'])
    print(
        '%u,%u,%.2f,%s' % (i + 1, s['generated_tokens'], rates[-1], 'same' if drafts == plain else 'DIFFERS'),
        flush=True,
    )
print('mean,,%.2f,' % (sum(rates) / len(rates)))
