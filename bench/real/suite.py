#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ntx on published models, beside llama.cpp's programs where they are at hand. Rows of Markdown tables.

    bench/real/suite.py MODEL.gguf... [--part PART,...] [--peer FOLDER] [--text FILE] [--windows 2] [--ctx 512]

tokens   texts of many languages and scripts to ids and back; with --vocab (Qwen2's tokenizer) beside llama.cpp's ids
greedy   30 prompts: the text in memory, streamed with the least memory, with one thread, with drafts; llama.cpp's text
chat     three turns over HTTP: the third asks for what the first said
tools    a function is called with valid arguments, and its result is used
quality  perplexity of --text; K and V in q8_0, q4_0: KL divergence, and the change of ln perplexity with its standard
         error; --f32: beside the weights in F32, and the same with these, whose products round no activations, so
         that it is K's and V's own error; --peer: llama.cpp's
needle   three numbers hidden in one text of --needle tokens, K and V in --kv-type (32768 takes long)

FOLDER holds llama-perplexity and llama-completion. A model without a chat template skips chat and tools. NTX_BIN:
build/bin. The exit code is 1 if ntx failed at what any model must do; what a model answers is printed, not judged.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'tests', 'lib'))
sys.path.insert(0, os.path.join(HERE, '..', '..', 'tests'))
BIN = os.environ.setdefault('NTX_BIN', os.path.join(HERE, '..', '..', 'build', 'bin'))
NTX = os.path.join(BIN, 'ntx')
os.environ['XDG_CONFIG_HOME'] = '/nonexistent'

LANGUAGES = (
    'The quick brown fox jumps over 13 lazy dogs.',
    'Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.',
    'Voix ambiguë d’un cœur qui au zéphyr préfère les jattes de kiwis.',
    'El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío.',
    'Pchnąć w tę łódź jeża lub ośm skrzyń fig.',
    'Съешь же ещё этих мягких французских булок, да выпей чаю.',
    'Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία.',
    'דג סקרן שט בים מאוכזב ולפתע מצא לו חברה.',
    'نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر.',
    'ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश।',
    'เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน',
    '我能吞下玻璃而不伤身体。天地玄黃，宇宙洪荒。',
    'いろはにほへと ちりぬるを。色は匂へど散りぬるを。',
    '키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다.',
    'Pijamalı hasta yağız şoföre çabucak güvendi.',
    'Tiếng Việt có sáu thanh điệu: ngang, huyền, sắc, hỏi, ngã, nặng.',
    'int main(void)\n{\n\treturn a[i++] != 0x1F ? -1 : 3.14e-7;\n}\n',
    '🚀👩‍👩‍👧‍👦 naïve café ½ № ∑∫√ ﷽ \u200b',
)

PROMPTS = (
    [
        'The capital of %s is' % c
        for c in ('France', 'Japan', 'Italy', 'Egypt', 'Peru', 'Kenya', 'Norway', 'India', 'Cuba', 'Spain')
    ]
    + ['%d plus %d is' % (a, b) for a, b in ((2, 3), (7, 5), (10, 4), (9, 9), (20, 22))]
    + [
        'def %s:' % f
        for f in (
            'add(a, b)',
            'is_even(n)',
            'factorial(n)',
            'reverse(s)',
            'maximum(xs)',
            'fibonacci(n)',
            'mean(values)',
        )
    ]
    + [
        'Water boils at',
        'A binary search works by',
        'The opposite of hot is',
        'Once upon a time, there was',
        '#include <stdio.h>\n\nint main(void)\n{',
        'SELECT name FROM users WHERE',
        'Deutschland liegt in',
        'La lune est',
    ]
)
assert len(PROMPTS) == 30

TOOL = {
    'type': 'function',
    'function': {
        'name': 'get_weather',
        'description': 'The weather of a city',
        'parameters': {'type': 'object', 'properties': {'city': {'type': 'string'}}, 'required': ['city']},
    },
}

bad = []


def name_of(model):
    return os.path.basename(model).removesuffix('.gguf')


def row(*cells):
    print('| ' + ' | '.join(str(c) for c in cells) + ' |', flush=True)


def check(ok, *words):
    if not ok:
        bad.append(' '.join(str(w) for w in words))
        print('FAILED: ' + bad[-1], flush=True)


def output(*cmd, stdin=b'', env=None):
    r = subprocess.run(cmd, input=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    if r.returncode:
        sys.exit('%s: status %d: %s' % (' '.join(cmd), r.returncode, r.stderr.decode(errors='replace')[-800:]))
    return r.stdout, r.stderr.decode(errors='replace')


def ntx(*args, stdin=b''):
    return output(NTX, *args, stdin=stdin)[0]


def peer(a, program, *args):
    env = dict(os.environ, LD_LIBRARY_PATH=a.peer)
    return output(os.path.join(a.peer, program), *args, env=env)


# ---- tokens


def ids_of(model, text, *options):
    return json.loads(ntx('tokenize', model, *options, stdin=text.encode()))


def tokens(a, model, tmp):
    back = 0
    for text in LANGUAGES:
        ids = ids_of(model, text)
        again = ntx('detokenize', model, stdin=json.dumps(ids).encode()).decode()
        same = again.rstrip('\n').lstrip() == text.rstrip('\n').lstrip()
        check(same, name_of(model), 'tokenizes', repr(text), 'and gives back', repr(again))
        back += same
    told = 'no reference'
    if a.vocab and 'qwen2' in os.path.basename(model).replace('.5', ''):
        texts = open(a.vocab + '.inp', encoding='utf-8', newline='').read().split('\n__ggml_vocab_test__\n')
        wanted = open(a.vocab + '.out').read().split('\n')
        n = 0
        for text, ids in zip(texts, wanted):
            same = ids_of(model, text) == [int(i) for i in ids.split()]
            check(same, name_of(model), 'has other ids than llama.cpp for', repr(text))
            n += same
        told = '%d of %d' % (n, len(texts))
    row(name_of(model), '%d of %d' % (back, len(LANGUAGES)), told)


# ---- greedy


def greedy(a, model, tmp):
    plain = ['--temp', '0', '-n', str(a.n), '-c', '256', '--raw', '--quiet', '--draft', 'off']
    ways = {'streamed': ['--ram', '1K'], 'one thread': ['--threads', '1'], 'drafts': ['--draft', 'lookup']}
    least = re.search(r'--ram (\d+\w?)', refusal(model, plain))
    ways['streamed'][1] = least[1] if least else '1G'
    equal, agrees = dict.fromkeys(ways, 0), 0
    for at, prompt in enumerate(PROMPTS):
        text = ntx('run', model, '-p', prompt, *plain)
        for way, options in ways.items():
            if at % 3 == list(ways).index(way):  # each prompt goes one other way
                other = ntx('run', model, '-p', prompt, *plain, *options)
                check(other == text, name_of(model), way, 'gives another text for', repr(prompt))
                equal[way] += other == text
        if a.peer:
            settings = ['-n', str(a.n), '--temp', '0', '-c', '256', '-no-cnv', '--no-display-prompt', '--no-warmup']
            theirs = peer(a, 'llama-completion', '-m', model, '-p', prompt, *settings)[0]
            agrees += theirs.decode(errors='replace').strip() == text.decode(errors='replace').strip()
    row(
        name_of(model),
        ', '.join('%s %d of 10' % (w, n) for w, n in equal.items()),
        '%d of %d' % (agrees, len(PROMPTS)) if a.peer else '',
    )


def refusal(model, options):
    """Too little memory is refused with the least that does."""
    r = subprocess.run([NTX, 'run', model, '-p', 'x', *options, '--ram', '1M'], capture_output=True, text=True)
    return r.stderr


# ---- over HTTP


def has_template(model):
    return b'tokenizer.chat_template' in ntx('inspect', model)


def asked(g, messages, n, **more):
    """The answer's message; None where the template has no calls."""
    body = dict(messages=messages, temperature=0, max_tokens=n, **more)
    status, reply = g.post('/v1/chat/completions', body, timeout=600)
    if status == 400 and 'has no calls of a known form' in reply['error']['message']:
        return None
    if status != 200:
        check(False, 'HTTP', status, reply)
        return {'content': ''}
    return reply['choices'][0]['message']


def chat(a, model, tmp):
    from gateway import Serve

    talk = []
    with Serve(tmp, model, '--ctx', '1024', '--sessions', '1') as g:
        for words in ('My name is Ada and I live in Oslo.', 'Name one prime number.', 'What is my name?'):
            talk.append({'role': 'user', 'content': words})
            talk.append({'role': 'assistant', 'content': asked(g, talk, 40)['content'] or ''})
    check(all(m['content'] for m in talk), name_of(model), 'answers nothing:', talk)
    row(name_of(model), 'Ada' in talk[-1]['content'], ' / '.join(m['content'].replace('\n', ' ') for m in talk[1::2]))


def tools(a, model, tmp):
    from gateway import Serve

    talk = [{'role': 'user', 'content': 'What is the weather in Paris? Call the function.'}]
    with Serve(tmp, model, '--ctx', '1024', '--sessions', '1') as g:
        m = asked(g, talk, 80, tools=[TOOL], tool_choice='required')
        if m is None:
            row(name_of(model), 'its template has no calls', '', '')
            return
        calls = m.get('tool_calls') or []
        check(calls, name_of(model), 'calls nothing although it must:', m)
        if not calls:
            return
        given = json.loads(calls[0]['function']['arguments'])
        check(calls[0]['function']['name'] == 'get_weather' and isinstance(given.get('city'), str), model, calls)
        talk += [m, {'role': 'tool', 'tool_call_id': calls[0]['id'], 'content': '{"sky": "clear", "celsius": 21}'}]
        last = asked(g, talk, 40, tools=[TOOL])['content'] or ''
    row(name_of(model), json.dumps(given), '21' in last, last.replace('\n', ' '))


# ---- quality


def scored(a, model, text, *options):
    return json.loads(ntx('perplexity', model, text, '-c', str(a.ctx), '--json', '--quiet', *options))


def peer_quality(a, model, text, tmp, kind):
    base = os.path.join(tmp, 'peer.base')
    settings = [
        '-f',
        text,
        '-c',
        str(a.ctx),
        '-b',
        str(a.ctx),
        '--chunks',
        str(a.windows),
        '--kl-divergence-base',
        base,
    ]
    if kind == 'f16':
        said = ''.join(str(x) for x in peer(a, 'llama-perplexity', '-m', model, *settings))
        m = re.search(r'Final estimate: PPL = ([\d.]+)', said)
        return m and '%.4f' % float(m[1])
    said = ''.join(
        x if isinstance(x, str) else x.decode()
        for x in peer(
            a, 'llama-perplexity', '-m', model, *settings, '--kl-divergence', '-fa', 'on', '-ctk', kind, '-ctv', kind
        )
    )
    ppl = re.search(r'Mean PPL\(Q\) +: +([\d.]+)', said)
    ratio = re.search(r'Mean ln\(PPL\(Q\)/PPL\(base\)\) +: +([-\d.]+) ± +([\d.]+)', said)
    kl = re.search(r'Mean +KLD: +([-\d.]+)', said)
    return ppl and '%s (%+.2f ± %.2f %%, KL %s)' % (ppl[1], 100 * float(ratio[1]), 100 * float(ratio[2]), kl[1])


def cut_text(a, model, tmp):
    ids = ids_of(model, open(a.text, encoding='utf-8').read())[: a.windows * a.ctx + 1]
    path = os.path.join(tmp, 'text')
    with open(path, 'wb') as f:
        f.write(ntx('detokenize', model, stdin=json.dumps(ids).encode()))
    return path


def kv_types(a, name, model, text, base, theirs):
    for kind in ('q8_0', 'q4_0'):
        r = scored(a, model, text, '--kv-type', kind, '--kl', base)
        change, error = 100 * r['change'], 100 * r['change_error']
        check(change < {'q8_0': 0.1, 'q4_0': 2}[kind] + 2 * error, name, 'K and V in', kind, 'cost', change, '%')
        told = '%+.2f ± %.2f' % (change, error)
        row(name, kind, '%.4f' % r['perplexity'], told, '%.5f' % r['kl_mean'], theirs(kind))


def quality(a, model, tmp):
    text, base = cut_text(a, model, tmp), os.path.join(tmp, 'base')

    def theirs(kind):
        return peer_quality(a, model, a.text, tmp, kind) if a.peer else ''

    whole = scored(a, model, text, '--save-logits', base)
    row(name_of(model), 'F16', '%.4f' % whole['perplexity'], '', '', theirs('f16'))
    kv_types(a, name_of(model), model, text, base, theirs)
    if not a.f32:
        return
    big = os.path.join(tmp, 'f32.gguf')
    ntx('quantize', model, big, 'F32', '--quiet')
    r = scored(a, big, text, '--kl', base)
    check(r['kl_mean'] < 0.01, name_of(model), 'is', r['kl_mean'], 'from its weights in F32')
    change = '%+.2f ± %.2f' % (-100 * r['change'], 100 * r['change_error'])
    row(name_of(model), 'F32 weights', '%.4f' % r['perplexity'], change, '%.5f' % r['kl_mean'], '')
    scored(a, big, text, '--save-logits', base)
    kv_types(a, name_of(model) + ' in F32', big, text, base, lambda kind: '')


# ---- needle


def needle(a, model, tmp):
    from gateway import Serve

    numbers = {'garden': '48151', 'harbour': '62342', 'library': '90317'}  # at 10, 50 and 90 % of one text
    words = open(a.text, encoding='utf-8').read().split()
    room = a.needle - 120
    text = (words * (1 + 2 * room // len(words)))[: int(room * 0.62)]
    while len(ids_of(model, ' '.join(text))) > room:
        text = text[: int(len(text) * 0.95)]
    for depth, (place, number) in reversed(list(zip((0.1, 0.5, 0.9), numbers.items()))):
        text.insert(int(depth * len(text)), '\n\nThe secret number of the %s is %s.\n\n' % (place, number))
    found, counted = [], []
    with Serve(tmp, model, '--ctx', str(a.needle), '--sessions', '1', '--kv-type', a.kv_type) as g:
        for place, number in numbers.items():
            said = 'The secret number of the %s is' % place
            prompt = '%s\n\nQuestion: What is the secret number of the %s?\nAnswer: %s' % (' '.join(text), place, said)
            body = dict(prompt=prompt, temperature=0, max_tokens=10)
            status, reply = g.post('/v1/completions', body, timeout=3600)
            check(status == 200, name_of(model), 'HTTP', status, reply)
            if status == 200:
                found.append('found' if number in reply['choices'][0]['text'] else 'not found')
                counted.append(str(reply['usage']['prompt_tokens']))
    row(name_of(model), a.kv_type, ', '.join(counted), ', '.join(found))


HEADS = {
    'tokens': ('model', 'texts that come back', 'ids as llama.cpp'),
    'greedy': ('model', 'the same text', 'llama.cpp\'s text'),
    'chat': ('model', 'knows the name', 'answers'),
    'tools': ('model', 'arguments', 'uses the result', 'answer'),
    'quality': ('model', 'K and V', 'perplexity', 'change, %', 'KL', 'llama.cpp'),
    'needle': ('model', 'K and V', 'tokens', 'at 10, 50, 90 %'),
}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('model', nargs='+')
    p.add_argument('--part', default='tokens,greedy,chat,tools,quality')
    p.add_argument('--peer', help='folder with llama.cpp\'s programs')
    p.add_argument('--vocab', help='PATH of PATH.inp and PATH.out, by llama.cpp for Qwen2\'s tokenizer')
    p.add_argument('--text', default=os.path.join(HERE, '..', '..', 'docs', 'architecture.md'))
    p.add_argument('--windows', type=int, default=2)
    p.add_argument('--ctx', type=int, default=512)
    p.add_argument('--needle', type=int, default=8192)
    p.add_argument('--kv-type', default='f16', help='of needle')
    p.add_argument('-n', type=int, default=12, help='tokens of a greedy text')
    p.add_argument('--f32', action='store_true', help='quality: beside the weights in F32, too')
    a = p.parse_args()
    for part in a.part.split(','):
        print('\n**%s**\n' % part)
        row(*HEADS[part])
        row(*['---'] * len(HEADS[part]))
        for model in a.model:
            if part in ('chat', 'tools') and not has_template(model):
                row(name_of(model), 'no template', *[''] * (len(HEADS[part]) - 2))
                continue
            with tempfile.TemporaryDirectory(prefix='ntx-real-') as tmp:
                globals()[part](a, model, tmp)
    return bool(bad)


sys.exit(main())
