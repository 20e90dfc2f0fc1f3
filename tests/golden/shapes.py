#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shapes.py: random shapes of each architecture, computed by ntx and by llama.cpp.

  shapes.py BIN N [ARCH ...]              N shapes of each, made by ntx-mkmodel; exits 1 if the results differ
  shapes.py BIN N --record [ARCH ...]     writes shapes.json, llama.cpp's results of N shapes of each, which the test
                                          forward-golden-shapes reads; with names, only those are replaced

qwen4exp is compared with transformers (qwen4.py), which needs torch, transformers and gguf; without a name it is left
out if they are missing. So are shapes of gpt-oss with YaRN and of DeepSeek-V2 with groups (plain.py).

It needs llama-cpp-python, as make.py does; shapes_test.py installs that and runs 200 of each in tests/run --long.
Random are: heads, their width and how much of it is rotated, widths, experts, how many are used, shared experts,
leading dense layers, optional tensors, blocks behind the layers, patterns of layers, scales of rotation and of experts,
types, and whether the output is tied.
"""

import array
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import llama_cpp as L
except ImportError:
    L = None
import numpy as np

import make

N_TOKENS, TOLERANCE = 40, {'F32': 2e-3, 'F16': 4e-3, 'Q8_0': 0.06}


def pick(r, *of):
    return str(r.choice(of))


def dense(r):
    return ['--ff', pick(r, 96, 256, 352)]


def experts(r, width='--expert-ff'):
    n = r.randrange(2, 17)
    return ['--experts', str(n), '--experts-used', str(r.randrange(1, n + 1)), width, pick(r, 32, 96, 160)]


def maybe(r, *options):
    return list(options) if r.random() < 0.5 else []


def glm(r):
    e = experts(r)
    return (
        e
        + dense(r)
        + ['--shared-ff', str(int(e[-1]) * r.randrange(1, 3)), '--dense', pick(r, 0, 1, 2)]
        + maybe(r, '--nextn', '1')
        + maybe(r, '--biases')
        + maybe(r, '--qk-norms')
        + maybe(r, '--expert-scale', '2.5')
        + maybe(r, '--rotated', '16')
    )


def first_experts(r):
    e = experts(r)
    return e + dense(r) + ['--shared-ff', str(int(e[-1]) * r.randrange(1, 3)), '--dense', pick(r, 0, 1, 2)]


def latent(r):
    rotated, lite = r.choice([16, 32, 64]), r.random() < 0.4
    head = rotated + r.choice([32, 64, 96, 128])
    e = experts(r)
    n = int(e[1])
    groups = [g for g in range(2, n // 2 + 1) if n % g == 0]
    if groups and r.random() < 0.7:
        g = r.choice(groups)
        used = r.randrange(1, g)
        e += ['--expert-groups', str(g), '--expert-groups-used', str(used)]
        e[3] = str(min(int(e[3]), used * (n // g)))
    scaling = yarn(r)
    return (
        [
            '--head-dim',
            str(head),
            '--rotated',
            str(rotated),
            '--kv-lora',
            pick(r, 32, 64, 96, 256, 512),
            '--value-dim',
            pick(r, 32, 64, 128),
        ]
        + e
        + dense(r)
        + ['--shared-ff', str(int(e[5]) * r.randrange(1, 3)), '--dense', pick(r, 0, 1, 2)]
        + maybe(r, '--kv-joined')
        + maybe(r, '--sigmoid')
        + maybe(r, '--biases')
        + maybe(r, '--expert-scale', '2.5')
        + scaling
        + (maybe(r, '--log-multiplier', pick(r, 0.0707, 0.1)) if scaling else [])
        + (
            ['--layers', pick(r, 26, 27), '--dense', pick(r, 23, 24, 25)]
            if lite
            else ['--q-lora', pick(r, 48, 64, 160)] + maybe(r, '--nextn', '1')
        )
        + maybe(r, '--fused')
    )


def choosing(r):
    o = latent(r)
    while '--q-lora' not in o or '--kv-joined' in o:
        o = latent(r)
    return [x for x in o if x not in ('--sigmoid', '--fused')] + [
        '--index-heads',
        pick(r, 8, 16, 20, 32),
        '--index-head',
        pick(r, 64, 128),
        '--index-most',
        pick(r, 3, 10, 20, 39),
    ]


def gated(r):
    o, drop = (
        choosing(r),
        (
            '--expert-groups',
            '--expert-groups-used',
            '--rope-scaling',
            '--rope-factor',
            '--rope-orig',
            '--ctx',
            '--log-multiplier',
            '--nextn',
        ),
    )
    for name in drop + (('--index-heads', '--index-head', '--index-most') if r.random() < 0.3 else ()):
        if name in o:
            del o[o.index(name) : o.index(name) + 2]
    if (
        '--index-head' in o and o[o.index('--rotated') + 1] == '64'
    ):  # llama.cpp wants a small query wider than what of it is rotated
        o[o.index('--index-head') + 1] = '128'
    return o + maybe(r, '--index-every', pick(r, 2, 3))


def pooled(r):
    e = experts(r)
    heads, parts = r.choice([(2, 1), (4, 2), (4, 4), (6, 3), (8, 2)])
    return (
        [
            '--heads',
            str(heads),
            '--kv',
            '1',
            '--head-dim',
            pick(r, 32, 64, 128),
            '--rotated',
            pick(r, 16, 32),
            '--q-lora',
            pick(r, 48, 64, 160),
            '--o-parts',
            str(parts),
            '--o-lora',
            pick(r, 16, 48, 64),
            '--window',
            pick(r, 4, 16, 64),
            '--hashed',
            pick(r, 0, 1, 2, 3),
            '--index-heads',
            pick(r, 8, 16, 20, 32),
            '--index-head',
            pick(r, 64, 128),
            '--index-most',
            pick(r, 1, 3, 6, 9),
        ]
        + e
        + ['--shared-ff', str(int(e[5]) * r.randrange(1, 3))]
        + maybe(r, '--expert-scale', '2.5')
        + yarn(r)
        + maybe(r, '--nextn', '1')
    )


def yarn(r, *orig):
    return maybe(
        r,
        '--rope-scaling',
        'yarn',
        '--rope-factor',
        pick(r, 2, 8, 16),
        '--rope-orig',
        pick(r, *(orig or (64, 128))),
        '--ctx',
        '2048',
    )


def delta(r):
    keys = r.choice([1, 2, 3])
    return (
        [
            '--delta-head',
            pick(r, 16, 32, 48, 64, 128),
            '--delta-keys',
            str(keys),
            '--delta-heads',
            str(keys * r.randrange(1, 4)),
            '--delta-taps',
            pick(r, 3, 4),
            '--attention-every',
            pick(r, 2, 3),
        ]
        + maybe(r, '--rotated', '16')
        + maybe(r, '--nextn', '1')
    )


def kda(r):
    e, rotated = experts(r), r.choice([16, 32, 64])
    return (
        [
            '--head-dim',
            str(rotated + r.choice([32, 64, 96])),
            '--rotated',
            str(rotated),
            '--kv-lora',
            pick(r, 32, 64, 96, 256),
            '--value-dim',
            pick(r, 32, 64, 128),
        ]
        + e
        + dense(r)
        + [
            '--shared-ff',
            str(int(e[-1]) * r.randrange(1, 3)),
            '--dense',
            pick(r, 0, 1, 2),
            '--delta-head',
            pick(r, 16, 32, 48, 64, 128),
            '--delta-taps',
            pick(r, 3, 4),
            '--attention-every',
            pick(r, 2, 3),
        ]
        + maybe(r, '--expert-scale', '2.446')
    )


def streamed(r):
    o = kda(r)
    del o[o.index('--rotated') : o.index('--rotated') + 2]
    pool = r.choice([2, 3, 4, 8])
    return (
        o
        + [
            '--q-lora',
            pick(r, 48, 64, 160),
            '--index-heads',
            pick(r, 8, 16, 20, 32),
            '--index-head',
            pick(r, 64, 128),
            '--index-pool',
            str(pool),
            '--index-most',
            str(r.randrange(1, 40 // pool)),
        ]
        + maybe(r, '--index-every', pick(r, 2, 3))
        + maybe(r, '--delta-bound', '5')
        + maybe(r, '--nextn', '1')
    )


def gemma4(r):
    return (
        dense(r)
        + ['--window', pick(r, 4, 16, 64)]
        + maybe(r, '--window-head', '32')
        + maybe(r, '--full-kv', '1')
        + maybe(r, '--shared-kv', '3')
        + maybe(r, '--layer-input', '32')
        + maybe(r, '--no-v')
        + (experts(r) + maybe(r, '--fused') if r.random() < 0.5 else [])
    )


def step(r):
    e = experts(r)
    return (
        e
        + dense(r)
        + ['--shared-ff', pick(r, 64, 160), '--dense', pick(r, 0, 1, 2), '--window', pick(r, 4, 16, 64)]
        + maybe(r, '--nextn', '1')
        + maybe(r, '--biases')
        + maybe(r, '--qk-norms')
        + maybe(r, '--expert-scale', '2.5')
        + maybe(r, '--rope-freqs', '--rope-factor', '8', '--rope-orig', '64')
    )


def blocks(r):
    pool, heads = r.choice([2, 3, 4, 8]), r.choice([2, 4])
    d = delta(r)[:10]  # neither what is rotated nor a block behind the layers
    return (
        experts(r)
        + [
            '--shared-ff',
            pick(r, 64, 160),
            '--rotated',
            pick(r, 16, 32),
            '--index-heads',
            pick(r, 4, 16, 20),
            '--index-head',
            pick(r, 32, 48, 128),
            '--index-pool',
            str(pool),
            '--index-most',
            str(r.randrange(1, 40 // pool)),
            '--low-rank',
            pick(r, 8, 40, 64),
        ]
        + d
        + maybe(r, '--fused')
        + maybe(
            r,
            '--gram-layer',
            pick(r, 1, 3 if d[-1] == '2' else 2),
            '--gram-heads',
            str(heads),
            '--gram-entries',
            pick(r, 53, 211, 1009),
        )
    )


BY_TRANSFORMERS = ('qwen4exp',)


def needs_plain(options):
    """Whether transformers is the reference (plain.py).

    llama.cpp rounds the ends of gpt-oss's YaRN ramp, and chooses DeepSeek-V2's groups as V3 does.
    """
    v2 = (
        options[1] == 'deepseek2'
        and '--expert-groups' in options
        and '--sigmoid' not in options
        and '--biases' not in options
    )
    return v2 or (options[1] == 'gpt-oss' and 'yarn' in options)


ARCHS = {
    'llama': lambda r: (experts(r) if r.random() < 0.4 else dense(r)) + maybe(r, '--biases') + yarn(r),
    'qwen2': dense,
    'qwen3': dense,
    'qwen2moe': lambda r: experts(r) + ['--shared-ff', pick(r, 64, 160)],
    'qwen3moe': experts,
    'gpt-oss': lambda r: experts(r) + ['--window', pick(r, 4, 16, 64)] + yarn(r),
    'glm4moe': glm,
    'minimax-m2': lambda r: experts(r, '--ff') + maybe(r, '--rotated', '16'),
    'olmoe': lambda r: experts(r, '--ff'),
    'smollm3': dense,
    'mistral3': lambda r: dense(r) + yarn(r, 8, 16, 128),
    'granite': dense,
    'deepseek': lambda r: first_experts(r) + maybe(r, '--expert-scale', '2.5') + yarn(r),
    'deepseek2': latent,
    'deepseek32': lambda r: ['0.1' if o == '0.0707' else o for o in choosing(r)],
    'glm-dsa': lambda r: (
        [x for x in choosing(r) if x not in ('--log-multiplier', '0.0707', '0.1')]
        + maybe(r, '--index-every', pick(r, 2, 3, 4))
    ),
    'hy_v4': gated,
    'deepseek4': pooled,
    'mistral4': lambda r: (
        ['0.1' if o == '0.0707' else o for o in latent(r)] + maybe(r, '--temperature-length', pick(r, 3, 16, 39))
    ),
    'qwen3next': lambda r: (
        experts(r) + ['--shared-ff', pick(r, 64, 160)] + delta(r) + maybe(r, '--fused') + maybe(r, '--delta-joined')
    ),
    'qwen35': lambda r: dense(r) + delta(r),
    'qwen35moe': lambda r: experts(r) + ['--shared-ff', pick(r, 64, 160)] + delta(r) + maybe(r, '--fused'),
    'kimi-linear': kda,
    'glm5-next': streamed,
    'qwen4exp': blocks,
    'granitemoe': lambda r: experts(r, '--ff') + ['--shared-ff', pick(r, 64, 160)],
    'gemma2': lambda r: dense(r) + ['--window', pick(r, 4, 16, 64), '--tied'],
    'gemma3': lambda r: (
        dense(r) + ['--window', pick(r, 4, 16, 64)] + maybe(r, '--rope-scaling', 'linear', '--rope-factor', '8')
    ),
    'gemma4': gemma4,
    'step35': step,
    'phi3': lambda r: (
        dense(r) + maybe(r, '--rotated', '16') + maybe(r, '--rope-freqs', '--rope-orig', pick(r, 100, 512))
    ),
    'llama4': lambda r: (
        experts(r)
        + dense(r)
        + ['--expert-every', pick(r, 1, 2, 3)]
        + maybe(r, '--rope-freqs', '--rope-factor', '8', '--rope-orig', '64')
    ),
}
LAYERS = {'gemma4': (6, 9), 'llama4': (4, 5, 7)}  # llama.cpp wants one that turns nothing
EVEN = ('phi3', 'olmoe', 'deepseek', 'qwen2', 'qwen2moe')  # heads that fill the width

UNTIED = (
    'qwen2moe',
    'gpt-oss',
    'minimax-m2',
    'olmoe',
    'gemma2',
    'deepseek4',
    'kimi-linear',
    'glm5-next',
    'step35',
    'hy_v4',
)  # as llama.cpp wants them, or tied already


def shape(arch, r):
    kv = r.choice([1, 2, 4])
    heads = kv * r.choice([1, 2, 3]) if arch not in EVEN else kv
    head = r.choice([32, 64])
    embd = heads * head if arch in EVEN else r.choice([128, 192, 256])
    more = ARCHS[arch](r)
    if arch == 'step35':  # of layers with a window
        more += maybe(r, '--window-heads', str(kv * r.choice([1, 2, 4])))
    types = ['F32'] if '--experts' in more else list(TOLERANCE)  # a router's ties turn with coarser ones
    return (
        [
            '--arch',
            arch,
            '--layers',
            pick(r, *LAYERS.get(arch, (3, 4, 5, 7))),
            '--embd',
            str(embd),
            '--heads',
            str(heads),
            '--kv',
            str(kv),
            '--head-dim',
            str(head),
            '--type',
            pick(r, *types),
            '--seed',
            str(r.randrange(10**6)),
        ]
        + (maybe(r, '--tied') if arch not in UNTIED else [])
        + more
    )


def ntx_logits(binaries, path, ids, n_vocab, tmp):
    out = os.path.join(tmp, 'logits')
    subprocess.run(
        [os.path.join(binaries, 'ntx'), 'logits', path, '--tokens', ','.join(map(str, ids)), '-o', out, '--quiet'],
        check=True,
    )
    return np.array(array.array('f', open(out, 'rb').read()), np.float32).reshape(len(ids), n_vocab)


def distances(a, b):
    """Of each row, by the spread of all."""
    return np.sqrt(((a - b) ** 2).mean(1)) / b.std()


def distance(a, b):
    return float(np.median(distances(a, b)))


class Shape:
    """One model and its logits.

    llama.cpp's with K and V in F16 and in F32, ntx's, and, for quantised weights, llama.cpp's of the same weights in
    F32.
    """

    def __init__(self, binaries, options, draw):
        with tempfile.TemporaryDirectory() as tmp:
            path = os.path.join(tmp, 'm.gguf')
            subprocess.run(
                [os.path.join(binaries, 'ntx-mkmodel')] + options + [path], check=True, stdout=subprocess.DEVNULL
            )
            self.options, self.tolerance = options, TOLERANCE[options[options.index('--type') + 1]]
            if options[1] in BY_TRANSFORMERS:
                import qwen4

                self.n_vocab = qwen4.File(path).key('vocab_size')
                ids = draw(self.n_vocab)
                self.wants = [qwen4.logits(qwen4.load(path), ids).astype(np.float64)] * 2
                self.got = ntx_logits(binaries, path, ids, self.n_vocab, tmp)
                return
            if needs_plain(options):
                import plain

                model = plain.load(path)
                self.n_vocab = model.config.vocab_size
                ids = draw(self.n_vocab)
                self.wants = [x.astype(np.float64) for x in (plain.logits_f16kv(model, ids), plain.logits(model, ids))]
                self.got = ntx_logits(binaries, path, ids, self.n_vocab, tmp)
                return
            model = make.load(path)
            self.n_vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(model))
            ids = draw(self.n_vocab)
            self.wants = [
                make.logits(model, ids, kv=kv).astype(np.float64) for kv in (L.GGML_TYPE_F16, L.GGML_TYPE_F32)
            ]
            L.llama_model_free(model)
            self.got = ntx_logits(binaries, path, ids, self.n_vocab, tmp)
            if 'Q8_0' in options:
                make.expand(path, os.path.join(tmp, 'f32.gguf'))
                model = make.load(os.path.join(tmp, 'f32.gguf'))
                self.exact = make.logits(model, ids).astype(np.float64)
                L.llama_model_free(model)

    def off(self):
        """The distance of the median row, from the nearer of the two.

        Not the worst row: a near-tie of a random router turns with the least rounding, and all rows after it differ a
        little.
        """
        return min(distance(self.got, want) for want in self.wants)

    def noise(self):
        return distance(*self.wants)


def drawn(r):
    return lambda n_vocab: [1] + [r.randrange(3, n_vocab) for _ in range(N_TOKENS - 1)]


def without_choice(options):
    """The same shape where its router takes all experts, of all groups: no tie can turn, and nothing else changes."""
    n, o = options[options.index('--experts') + 1], list(options)
    for name in ('--expert-groups', '--expert-groups-used'):
        if name in o:
            del o[o.index(name) : o.index(name) + 2]
    return o + ['--experts-used', n]


def is_tie(binaries, s, r):
    """A shape that parted, though from some row on only, and whose every row is near once its router has no choice."""
    rows = min((distances(s.got, want) for want in s.wants), key=np.median)
    first = int(np.argmax(rows > 4 * s.tolerance))
    if '--experts' not in s.options or not first or not (rows[:first] <= 4 * s.tolerance).all():
        return False
    all_used = Shape(binaries, without_choice(s.options), drawn(r))
    rows = min((distances(all_used.got, want) for want in all_used.wants), key=np.median)
    print(
        'tie   row %d of %d parts by %.3g; all experts used, no row by more than %.3g: %s'
        % (first, N_TOKENS, distances(s.got, s.wants[0])[first], rows.max(), ' '.join(s.options)),
        flush=True,
    )
    return bool((rows <= 4 * s.tolerance).all())


def is_rounding(s):
    """Both are equally far from the result of the weights in F32.

    Then they differ by how inputs are rounded to eight bits, each program in blocks of its own.
    """
    if 'Q8_0' not in s.options:
        return False
    ours, theirs = distance(s.got, s.exact), distance(s.wants[0], s.exact)
    print(
        'round %.3g from each other; from F32 ntx %.3g, llama.cpp %.3g: %s'
        % (s.off(), ours, theirs, ' '.join(s.options)),
        flush=True,
    )
    return ours <= 1.25 * theirs


def compare(binaries, arch, n):
    worst, ties, rounded, wrong = {}, 0, 0, 0
    for i in range(n):
        r = random.Random('%s %d' % (arch, i))
        options = shape(arch, r)
        if needs_plain(options) and not found(BY_TRANSFORMERS[0]):
            continue
        s = Shape(binaries, options, drawn(r))
        off, of = s.off(), s.options[s.options.index('--type') + 1]
        if off <= s.tolerance:
            worst[of] = max(worst.get(of, 0), off)
        elif off <= s.noise() or is_tie(binaries, s, r):
            ties += 1
        elif is_rounding(s):
            rounded += 1
        else:
            print(
                'FAIL  %d %.3g of %.3g, noise %.3g: %s' % (i, off, s.tolerance, s.noise(), ' '.join(s.options)),
                flush=True,
            )
            wrong += 1
    print(
        '%-12s %d shapes, at most %s; %d near-ties of routers, %d by rounding'
        % (arch, n, ', '.join('%s %.3g' % x for x in sorted(worst.items())), ties, rounded),
        flush=True,
    )
    return wrong


POSITIONS, N_VALUES = (1, 9, 24, 39), 10  # as tests/unit/pass/golden.c has them


def counted(seed):
    """Tokens that need no list, as tests/unit/pass/golden.c counts them."""
    return lambda n_vocab: [1] + [3 + (i * 7919 + seed) % (n_vocab - 3) for i in range(1, N_TOKENS)]


def record(binaries, arch, n):
    """The first n whose recorded rows no near-tie turns. What parts otherwise is not left out: it ends this."""
    out, i = [], 0
    while len(out) < n:
        r = random.Random('%s %d' % (arch, i))
        options = shape(arch, r)
        s = Shape(binaries, options, counted(int(options[options.index('--seed') + 1])))
        i += 1
        at = np.ix_(POSITIONS, [k * s.n_vocab // N_VALUES for k in range(N_VALUES)])
        want = min(s.wants, key=lambda w: distance(s.got, w))
        if (np.sqrt(((s.got[at] - want[at]) ** 2).mean(1)) / want.std()).max() > 0.9 * s.tolerance:
            assert s.off() <= s.tolerance or s.off() <= s.noise() or is_tie(binaries, s, r), ' '.join(options)
            continue
        out.append(
            {
                'options': ' '.join(options),
                'sd': float('%.5g' % want.std()),
                'most': s.tolerance,
                'logits': [[float('%.5g' % x) for x in row] for row in want[at]],
            }
        )
    return out


def write(binaries, n, wanted):
    path = os.path.join(make.HERE, 'shapes.json')
    old = json.load(open(path)) if wanted else []
    cases = [
        c
        for arch in ARCHS
        for c in (
            record(binaries, arch, n)
            if not wanted or arch in wanted
            else [c for c in old if c['options'].split()[1] == arch]
        )
    ]
    with open(path, 'w') as f:
        f.write('[\n' + ',\n'.join(json.dumps(c, separators=(',', ':')) for c in cases) + '\n]\n')


def found(arch):
    if arch not in BY_TRANSFORMERS:
        return True
    try:
        import qwen4

        return qwen4 is not None
    except ImportError as e:
        print('%-12s not compared: %s' % (arch, e))
        return False


def main():
    if L:
        L.llama_log_set(make.quiet, None)
        L.llama_backend_init()
    binaries, n, wanted = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    if wanted[:1] == ['--record']:
        write(binaries, n, wanted[1:])
        return
    sys.exit(sum(compare(binaries, arch, n) for arch in wanted or filter(found, ARCHS)) > 0)


if __name__ == '__main__':
    main()
