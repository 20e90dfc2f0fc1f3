#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The trained models against what was recorded when they were added (quality.json).

Greedy text, perplexity of held-out text, exact answers.

  quality_test.py            every model of quality.json that is in models/
  quality_test.py record     prints a new quality.json; compare its greedy text with llama.cpp's before keeping it

A lossless change alters none of these except by rounding; a lossy technique is measured against the same figures.
"""

import json
import os
import subprocess
import sys
import tempfile

SOURCE, BIN = os.environ.get('NTX_SOURCE'), os.environ.get('NTX_BIN')
if not SOURCE or not BIN:
    sys.exit('run through ctest, or set NTX_SOURCE and NTX_BIN')
HERE, MODELS = os.path.dirname(os.path.abspath(__file__)), os.path.join(SOURCE, 'models')
CHARS, QUESTIONS = 6000, 25  # of the held-out files: enough to notice
PROMPT = 'One morning'
CHATS = {
    'demo-chat.gguf': [
        'One morning',
        'Tell me about yourself.',
        'Ben is in the park and Ivy has a red drum. Where is Ben?',
    ]
}  # writes no stories: gateway-chat asks it more


def ntx(*args):
    r = subprocess.run(
        [os.path.join(BIN, 'ntx'), *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        timeout=250,
    )
    if r.returncode:
        sys.exit('ntx %s: exit %d: %s' % (' '.join(args), r.returncode, r.stderr.decode(errors='replace')))
    return r.stdout.decode()


def beginnings(tmp):
    """The first part of the held-out text and questions, as files."""
    text, questions = os.path.join(tmp, 'text'), os.path.join(tmp, 'questions')
    with open(os.path.join(MODELS, 'held-out.txt')) as f, open(text, 'w') as out:
        out.write(f.read(CHARS))
    with open(os.path.join(MODELS, 'held-out.jsonl')) as f, open(questions, 'w') as out:
        out.writelines(f.readlines()[:QUESTIONS])
    return text, questions


def measure(name, text, questions):
    model = os.path.join(MODELS, name)
    if name in CHATS:
        return {
            'greedy': '\n'.join(
                ntx('run', model, q, '-n', '60', '--temp', '0', '--quiet').rstrip('\n') for q in CHATS[name]
            )
        }
    perplexity = json.loads(ntx('perplexity', model, text, '--json').splitlines()[-1])
    answers = json.loads(ntx('eval', model, '--questions', questions, '--json').splitlines()[-1])
    return {
        'greedy': ntx('run', model, PROMPT, '-n', '60', '--temp', '0', '--quiet').rstrip('\n'),
        'perplexity': round(perplexity['perplexity'], 4),
        'right': answers['correct'],
    }


def differences(name, is_, was):
    if is_['greedy'] != was['greedy']:
        yield '%s wrote %r, not %r' % (name, is_['greedy'], was['greedy'])
    if name in CHATS:
        return
    if abs(is_['perplexity'] / was['perplexity'] - 1) > 0.002:
        yield '%s has a perplexity of %g, not %g' % (name, is_['perplexity'], was['perplexity'])
    if abs(is_['right'] - was['right']) > 1:
        yield '%s answers %d of %d, not %d' % (name, is_['right'], QUESTIONS, was['right'])


def main():
    names = sorted(n for n in os.listdir(MODELS) if n.endswith('.gguf'))
    with tempfile.TemporaryDirectory(prefix='ntx-test-') as tmp:
        files = beginnings(tmp)
        if sys.argv[1:] == ['record']:
            print(json.dumps({n: measure(n, *files) for n in names}, indent=1))
            return 0
        if not names:
            print('skipped: no model in models/')
            return 77
        with open(os.path.join(HERE, 'quality.json')) as f:
            recorded = json.load(f)
        wrong = [
            d
            for n in names
            for d in ([n + ' has no record'] if n not in recorded else differences(n, measure(n, *files), recorded[n]))
        ]
    print('\n'.join(wrong) or 'as recorded: ' + ', '.join(names))
    return bool(wrong)


sys.exit(main())
