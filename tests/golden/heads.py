#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""heads.py MKMODEL LLAMA_BIN: writes heads.json, the drafts of llama.cpp's llama-speculative-simple.

The drafters are files that use states of the model's layers; the program is of October 2026, in LLAMA_BIN beside
llama-tokenize. For each of its first calls: the text so far, and for each drafted token the three most likely ones with
their probabilities among ten.

The tests do not run it: tests/unit/pass/heads.c reads heads.json. Models are random ones in F32, from ntx-mkmodel.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
MODEL = '--layers 4 --embd 128 --heads 4 --kv 2 --ff 256 --type F32 --seed 5'
HEAD = '--embd 128 --heads 4 --kv 2 --ff 256 --type F32'
CASES = {
    'eagle3': (MODEL, 'draft-eagle3', '--arch eagle3 --layers 1 %s --taps 1,2,3 --draft-vocab 300 --seed 7' % HEAD),
    'eagle3.bare': (MODEL, 'draft-eagle3', '--arch eagle3 --layers 1 %s --taps 0,2,3 --bare --seed 8' % HEAD),
    'eagle3.norms': (
        MODEL,
        'draft-eagle3',
        '--arch eagle3 --layers 1 %s --taps 0,1,2 --norm-before-fc --norm-before-residual --seed 9' % HEAD,
    ),
    'eagle3.wide': (
        '--arch qwen3 --layers 3 --embd 192 --heads 6 --kv 2 --head-dim 32 --ff 256 --type F32 --seed 6',
        'draft-eagle3',
        (
            '--arch eagle3 --layers 1 --embd 128 --heads 2 --kv 1 --head-dim 64 --ff 320 --type F32 --taps 0,1,2'
            ' --state-width 192 --rope-base 500000 --seed 10'
        ),
    ),
    'dflash': (
        MODEL,
        'draft-dflash',
        '--arch dflash --layers 3 %s --taps 1,2,3 --bare --window 4096 --block 4 --seed 13' % HEAD,
    ),
    'dflash.windows': (
        MODEL,
        'draft-dflash',
        '--arch dflash --layers 2 %s --taps 0,1,2,3 --draft-vocab 400 --window 6 --block 4 --rope-base 1000000'
        ' --seed 14' % HEAD,
    ),
    # llama.cpp gives the output of the last layer for some architectures only, and for gpt-oss before its norm.
    'eagle3.last': (
        (
            '--arch gpt-oss --layers 3 --embd 128 --heads 4 --kv 2 --head-dim 32 --experts 4 --experts-used 2'
            ' --expert-ff 96 --type F32 --seed 11'
        ),
        'draft-eagle3',
        '--arch eagle3 --layers 1 %s --taps 1,2,3 --draft-vocab 500 --seed 12' % HEAD,
    ),
}
PROMPT, CALLS = 'one two three four', 4


def run(*args):
    return subprocess.run(args, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).stderr.decode(
        errors='replace'
    )


def tokens_of(llama, model):
    out = subprocess.run(
        [llama + '/llama-tokenize', '-m', model, '-p', PROMPT, '--ids', '--log-disable'],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ).stdout.decode()
    return json.loads(out.strip().splitlines()[-1])


def calls_of(log, tokens):
    """One after the other: what was drafted, then what of it was accepted."""
    calls, drafted = [], []
    text = list(tokens)
    for line in log.splitlines():
        candidate = re.search(r'draft candidate +(\d+), pos +(\d+): +(\d+) \( +([0-9.]+)\)', line)
        accepted = re.search(r'accepted (\d+)/\d+ draft tokens, the last target token is: \((\d+)\)', line)
        if candidate:
            k, pos, token, p = int(candidate[1]), int(candidate[2]), int(candidate[3]), float(candidate[4])
            while len(drafted) <= pos:
                drafted.append([])
            assert len(drafted[pos]) == k
            drafted[pos].append([token, p])
        elif accepted:
            calls.append({'tokens': text[:], 'drafted': drafted})
            text += [d[0][0] for d in drafted[: int(accepted[1])]] + [int(accepted[2])]
            drafted = []
    return calls


def make(mkmodel, llama, name, tmp):
    options, kind, head = CASES[name]
    model, drafter = tmp + '/m.gguf', tmp + '/d.gguf'
    subprocess.run([mkmodel, *options.split(), model], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([mkmodel, *head.split(), drafter], check=True, stdout=subprocess.DEVNULL)
    log = run(
        llama + '/llama-speculative-simple',
        '-m',
        model,
        '-md',
        drafter,
        '--spec-type',
        kind,
        '--spec-draft-n-max',
        '3',
        '--spec-draft-p-min',
        '0',
        '-p',
        PROMPT,
        '-n',
        '12',
        '--temp',
        '0',
        '-lv',
        '5',
        '-ngl',
        '0',
        '-fa',
        'off',
        '-ctk',
        'f32',
        '-ctv',
        'f32',
        '-ctkd',
        'f32',
        '-ctvd',
        'f32',
        '-t',
        '1',
    )
    prompt = tokens_of(llama, model)
    calls = calls_of(log, prompt)[:CALLS]
    assert len(calls) == CALLS, log[-3000:]
    return {'name': name, 'model': options, 'head': head, 'calls': calls}


def main():
    mkmodel, llama = sys.argv[1:]
    with tempfile.TemporaryDirectory() as tmp:
        cases = [make(mkmodel, llama, name, tmp) for name in CASES]
    with open(HERE + '/heads.json', 'w') as f:
        f.write('{"cases": [\n%s\n]}\n' % ',\n'.join(json.dumps(c) for c in cases))


if __name__ == '__main__':
    main()
