#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""models/train/corpus.py writes the held-out files in models/, and training never sees a held-out pair."""

import json
import os
import re
import subprocess
import sys
import tempfile

SOURCE = os.environ.get('NTX_SOURCE') or sys.exit('run through ctest, or set NTX_SOURCE to the checkout')
TRAIN, MODELS = os.path.join(SOURCE, 'models', 'train'), os.path.join(SOURCE, 'models')
sys.dont_write_bytecode = True
sys.path.insert(0, TRAIN)
import corpus  # noqa: E402
import words  # noqa: E402

SCENERY = {'bag', 'basket', 'boat'}  # also stand in sentences of their own

failures = []


def check(ok, text):
    if not ok:
        failures.append(text)
        print('FAIL  ' + text, flush=True)


def read(path):
    with open(path) as f:
        return f.read()


def pairs(story):
    found = re.findall('[A-Za-z]+', story)
    names = set(found) & set(words.GIRLS + words.BOYS)
    things = set(found) & set(words.THINGS) - SCENERY
    return [(n, t) for n in names for t in things]


def write(tmp, *options):
    out = os.path.join(tmp, 'out.txt')
    subprocess.run([sys.executable, '-B', os.path.join(TRAIN, 'corpus.py'), *options, '--out', out], check=True)
    return read(out)


with tempfile.TemporaryDirectory(prefix='ntx-test-') as tmp:
    questions = os.path.join(tmp, 'q.jsonl')
    text = write(tmp, '--seed', '7', '--docs', '400', '--held', '--questions', questions)
    check(text == read(os.path.join(MODELS, 'held-out.txt')), 'held-out.txt is not what corpus.py writes')
    check(
        read(questions) == read(os.path.join(MODELS, 'held-out.jsonl')), 'held-out.jsonl is not what corpus.py writes'
    )

    train = write(tmp, '--seed', '1', '--docs', '2000')
    check(train == write(tmp, '--seed', '1', '--docs', '2000'), 'the same seed gave two texts')
    docs = train.rstrip('\n').split('\n\n')
    check(len(docs) == 2000, '%d documents instead of 2000' % len(docs))
    check(not any(corpus.pair_held(n, t) for d in docs for n, t in pairs(d)), 'a held-out pair in the training text')
    check(sum(d.count('\nQ: ') == d.count('\nA: ') for d in docs) == 2000, 'questions and answers are not paired')

    asked = [json.loads(line) for line in read(questions).splitlines()]
    check(len(asked) == 400, '%d questions' % len(asked))
    check(
        all(
            q['prompt'].endswith('\nA:') and 1 <= len(q['answer'].split()) <= 3 and '.' not in q['answer']
            for q in asked
        ),
        'an odd question',
    )

print('%d failures' % len(failures))
sys.exit(bool(failures))
