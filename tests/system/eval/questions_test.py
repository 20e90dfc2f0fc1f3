#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`ntx eval`: the accuracy is the share of questions whose answer is what `ntx run` writes for that question alone.

It does not depend on the number of questions that share a pass, on the budget or on threads.
"""

import json

from kit import check, model, ntx, path, refused, write

M = model('m.gguf', '--layers', '3', '--embd', '256', '--ff', '512', '--type', 'Q8_0', '--seed', '5')
WORDS = [
    'the little girl',
    'once upon a time',
    'he said that',
    'what is it',
    'many people would',
    'hello world',
    'two more',
    'look at him',
    'they were happy',
    'the big boy',
    'a friend',
    'write to them',
    'no way out',
    'see how',
    'play with her',
    'in the day',
    'all of this',
    'can you',
    'we have one',
    'up and out',
]


def alone(prompt):
    """The answer that `ntx run` writes for this question."""
    text = ''
    for line in ntx(
        'run',
        M,
        prompt,
        '--raw',
        '--temp',
        '0',
        '-n',
        '12',
        '--stop',
        '\n',
        '--stop',
        '.',
        '--json',
        '--quiet',
        '--ctx',
        '128',
    ).splitlines():
        text += json.loads(line).get('text', '')
    return text.strip(' \t\n\r\v\f')


def line(prompt, answer):
    return json.dumps({'prompt': prompt, 'answer': answer}) + '\n'


def main():
    known = [(p, alone(p)) for p in WORDS]
    known = [(p, a) for p, a in known if a]
    check(len(known) >= 10, 'only %d of the prompts have an answer' % len(known))
    wrong = {1, 4, 9}
    # White space around the answer, a closing full stop and empty lines do not count.
    text = '\n'.join(
        line(p, a + ' no' if i in wrong else (' %s. ' % a if i % 2 else a)) for i, (p, a) in enumerate(known)
    )
    q = write('q.jsonl', text)
    expected = {
        'questions': len(known),
        'correct': len(known) - len(wrong),
        'accuracy': (len(known) - len(wrong)) / len(known),
        'lossy': [],
    }
    for options in (
        ['-n', '12'],
        ['-n', '12', '--threads', '1', '--ram', '8M', '--sessions', '1', '--ctx', '64'],
        ['-n', '12', '--ram', '5M'],
    ):
        got = json.loads(ntx('eval', M, '--questions', q, '--json', '-v', '--quiet', *options))
        check({k: got[k] for k in expected} == expected, '%s: %r, expected %r' % (options, got, expected))
        check(
            [(w['prompt'], w['got']) for w in got['wrong']] == [known[i] for i in sorted(wrong)],
            '%s: wrong answers %r' % (options, got['wrong']),
        )
    check(
        'wrong' not in json.loads(ntx('eval', M, '--questions', q, '--json', '-n', '12')),
        'wrong answers are shown without -v',
    )
    text = ntx('eval', M, '--questions', q, '-n', '12', '-v', '--stats', path('s'))
    check(
        text.count('wrong: ') == 3 and text.splitlines()[-1].startswith('accuracy %.4f: ' % expected['accuracy']),
        'as text: %r' % text,
    )
    with open(path('s')) as f:
        check(json.load(f)['accuracy'] == expected['accuracy'], 'the statistics file')

    def bad(text, pattern):
        refused(111, pattern, 'eval', M, '--questions', write('bad', text))

    refused(100, '--questions FILE is needed', 'eval', M)
    refused(111, 'No such file', 'eval', M, '--questions', path('none'))
    bad('', 'no questions')
    bad(line('a', 'b') + 'x\n', 'line 2: no JSON')
    bad('{"prompt": "a"}', 'not of the form')
    bad('{"prompt": "", "answer": "b"}', 'not of the form')
    bad('[1, 2]', 'not of the form')
    bad(line('a', ' . '), 'is empty')
    bad(line('a', '3.5'), 'no continuation could equal it')
    print('%d questions, accuracy %.4f in every way of asking' % (len(known), expected['accuracy']))


main()
