#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An upper bound for a card's products of one row (or of 2, 4, 8), from machine code, without a measurement.

    bench/slots.py [--kernels REGEX] [--rows N] LIBRARY [LIBRARY-BEFORE]
    bench/slots.py --table LIBRARY     as in computed/plan/estimates.c: GB/s of weights on an H100's multiprocessors,
                                       whatever its memory's rate, with 1, 2, 4 and 8 rows

LIBRARY has the machine code of one card, 9.0 (a package has more: cuobjdump -xelf sm_90 LIBRARY).

For each type's loop over a row's blocks (cuobjdump; the plug-in, or a cubin of it): the bytes of weights per warp
instruction, and the share of a card's copy rate that the tightest of these bounds allows:

  i  instructions: 4 per clock of an SM
  a  integers, logic, bytes, conversions (ALU): 2 per clock; m: integer products, IDP and IMAD: 2 per clock
  l  loads, stores to and from shared memory, shuffles: a warp's request is served at 128 bytes per clock, a shuffle
     counts as one; lanes that are a block apart take a clock for each line of 128 bytes that they touch (global
     memory), or for each word of the bank that most of them need (shared memory), on average over positions of rows
     (a predicate leaves those whose word lies across two). So do lanes that look up entries of a codebook, each in its
     copy, with all entries equally likely. Copying a codebook to shared memory is divided over the outputs of a block,
     of 4,096 inputs each; that of a persistent block (IQ1, one row or two of much; cuda/persistent.h) over 1,024 times
     1,024 weights of its SM, and nothing else is done meanwhile
  f  bytes in flight: of all warps that registers and shared memory leave room for, against 700 ns

Not included: the beginning and the end of a row, the L2 cache, dependences between instructions, clocks under load.
Weights are counted by the dot products of a loop.
"""

import functools
import random
import re

import sass

CARDS = {
    'H100': (132, 1.75, 3000, 228),
    'H200': (132, 1.75, 4300, 228),
    '4090': (128, 2.5, 930, 100),
}  # SMs, GHz, copy GB/s, KiB of shared memory
LATENCY = 700  # ns
FLOATS = dict(F32=4, F16=2, BF16=2)
SIMPLE = dict(Q4_0=18, Q4_1=20, Q5_0=22, Q5_1=24, Q8_0=34, MXFP4=17, IQ4_NL=18)
OTHERS = dict(NVFP4=(64, 36), Q1_0=(128, 18), Q2_0=(64, 18))
SUPER = dict(
    Q2_K=84,
    Q3_K=110,
    Q4_K=144,
    Q5_K=176,
    Q6_K=210,
    IQ4_XS=136,
    IQ3_XXS=98,
    IQ3_S=110,
    IQ2_XXS=66,
    IQ2_XS=74,
    IQ2_S=82,
    IQ1_S=50,
    IQ1_M=56,
    TQ1_0=54,
    TQ2_0=66,
)
PART = dict(
    Q4_K=16, Q5_K=16, Q6_K=16, IQ4_XS=16, IQ2_S=4, IQ1_S=4, IQ1_M=4, TQ1_0=4
)  # bytes from a part's to the next one's; of others 8
BOOKS = dict(
    IQ2_XXS=(256, 8),
    IQ2_XS=(512, 8),
    IQ2_S=(1024, 8),
    IQ1_S=(1024, 8),
    IQ1_M=(1024, 8),
    IQ3_XXS=(256, 4),
    IQ3_S=(256, 4),
)  # words, values of one's entry
INPUTS = 4096  # of a row, over which a book's way is shared out
SHARE = 1024  # times 1,024 weights, of an SM's persistent block: matrices of 138 million, as gate and up of 8B
SLOT = lambda piece: (piece + 34) // 16 * 16


def outs_of(t, rows):  # cuda/fetch.h
    if t in 'TQ1_0 IQ1_S IQ1_M Q1_0 IQ2_XS IQ2_S'.split():
        return 4 if rows == 1 else 2
    return 2 if t in 'Q2_0 NVFP4 IQ2_XXS IQ3_XXS IQ3_S TQ2_0 IQ4_XS Q2_K Q3_K'.split() else 1


def geometry(t, rows=1, width=4):
    """Values and bytes of a block; bytes of a piece, threads of a row; and each lane's place.

    The place is the output of a lane of a warp that loads so many bytes, and where in that output's row it begins.
    """
    outs = outs_of(t, rows)
    if t in SUPER:
        return (
            256,
            SUPER[t],
            8 * SUPER[t],
            32,
            [
                (
                    l % 8 * outs // 8 if t == 'TQ1_0' and rows <= 2 else 0,
                    l // 8 * SUPER[t] + l % 8 * (width if width < 4 else PART.get(t, 8)),
                )
                for l in range(32)
            ],
        )
    values, size = OTHERS.get(t, (32, SIMPLE.get(t)))
    return (
        values,
        size,
        1024 // values * size,
        16,
        [
            (l // 16 * outs, l % 16 // (values // 32) * size + l % (values // 32) * (size // (values // 32)))
            for l in range(32)
        ],
    )


def slots(t):
    return 4 if t == 'Q2_0' else 2


def fullest(words):
    """Clocks of lanes that want these words of shared memory."""
    banks = [w % 32 for w in set(words)]
    return max(banks.count(b) for b in banks)


@functools.cache
def clocks_of_lanes(t, rows, shared, width=4, across=False):
    """Of a load of at most a word, on average; across: only by lanes whose word lies across two."""
    _, _, piece, threads, lanes = geometry(t, rows, width)
    ring, draw, total = slots(t) * SLOT(piece), random.Random(1), 0
    for _ in range(400):
        phase = [draw.randrange(0, 16, 2) for _ in range(max(4, outs_of(t, rows) + 1))]
        at = [p + phase[o] + o * (ring if shared else 1 << 20) for o, p in lanes]
        words = [a // 4 for a in at if a % 4 or not across]
        total += (fullest(words) if words else 1) if shared else len({w // 32 for w in words})
    return total / 400


@functools.cache
def clocks_of_book(words, copies):
    """Clocks of a look-up in a codebook in shared memory.

    Its copies are interleaved word by word: lane l looks in copy l % copies.
    """
    draw = random.Random(1)
    return sum(fullest([draw.randrange(words) * copies + l % copies for l in range(32)]) for _ in range(2000)) / 2000


def threads_of(t):  # of a block, cuda/fetch.h
    return 256 if t in BOOKS and BOOKS[t][0] == 256 else 128


def copies_of(t, rows, shared):
    """Of the book that a block's shared memory has beside the rings of its rows' pieces."""
    piece, threads = geometry(t)[2:4]
    return (
        16 if shared - threads_of(t) // threads * outs_of(t, rows) * slots(t) * SLOT(piece) > 8 * 4 * BOOKS[t][0] else 1
    )


def clocks_to_bring(t, copies):
    """Clocks of copying a codebook from the L1 cache to shared memory, 16 bytes per thread.

    A load of neighbouring words, or of few (of IQ1's 32 copies: of two halves), and a store of four clocks.
    """
    loads = 4 if copies == 1 else 1 if copies == 16 else 2
    return BOOKS[t][0] * copies / 4 / 32 * (4 + loads)


def resources(path):
    found, name = {}, None
    for line in sass.dumped('-res-usage', path):
        if m := re.search(r'Function (\S+?):', line):
            name = sass.plain(m.group(1))
        elif m := re.search(r'REG:(\d+).*SHARED:(\d+)', line):
            found[name] = int(m.group(1)), int(m.group(2))
    return found


def count(code, t, rows, copies, persistent):
    """Clocks of an SM by pipe, for a warp once around; weights."""
    c, dots, staged = dict(i=0, a=0, m=0, l=0), 0, any('LDGSTS' in op for _, op in code)
    narrow_x = 0
    for _, op in code:
        idle, across = op.startswith('@!PT'), bool(re.match('@!?P', op))
        op = re.sub(r'^@!?U?P\w+\s+', '', op)
        name = op.split()[0].split('.')[0]
        c['i'] += 1 / 4
        if idle:
            continue
        if op.startswith('IDP.4A'):  # not those of two: minima
            dots += 1
        if name in ('IDP', 'IMAD'):
            c['m'] += 1 / 2
        elif name in (
            'LOP3',
            'SHF',
            'IADD3',
            'IADD',
            'VIADD',
            'PRMT',
            'ISETP',
            'SEL',
            'LEA',
            'BFE',
            'SGXT',
            'IMNMX',
            'VIMNMX',
            'I2FP',
            'PLOP3',
            'IABS',
            'FSEL',
            'FSETP',
            'VABSDIFF',
            'LOP',
            'SHL',
            'SHR',
        ):
            c['a'] += 1 / 2
        elif name in ('I2F', 'F2F', 'F2I', 'MUFU', 'I2I', 'POPC'):
            c['a'] += 2
        elif name == 'HADD2':
            c['m'] += 1 / 2
        elif name in ('LDG', 'LDS', 'LDGSTS', 'STS', 'LD', 'LDL', 'STL', 'LDC', 'SHFL'):
            w = sass.width(op.split()[0])
            if name in ('SHFL', 'LDC'):
                c['l'] += 1
            elif name == 'LDS' and w <= 4:
                c['l'] += clocks_of_lanes(t, rows, True, w, across and t in SUPER)
            elif name == 'LDG' and w <= 4 and not staged:
                narrow_x += 1
                c['l'] += clocks_of_lanes(t, rows, False)
            elif (
                name == 'LDG' and w == 4 and t == 'TQ1_0' and staged and rows <= 2
            ):  # words of x: as many of four blocks as of one line
                c['l'] += 2.5
            elif name != 'LDGSTS':
                c['l'] += max(1, w / 4)
    weights = (
        128
        * dots
        / rows
        / (1 + 1 / outs_of(t, rows) if staged and t in ('Q3_K', 'TQ2_0', 'IQ1_S', 'IQ1_M') else 2 if t == 'Q3_K' else 1)
    )  # others are sums of x
    if staged:
        c['l'] += weights / geometry(t)[0] * geometry(t)[1] / 128
    if t in BOOKS and staged:  # look-ups are counted above as if lanes lay beside one another
        c['l'] += (
            weights
            / BOOKS[t][1]
            / 32
            * (
                clocks_of_book(BOOKS[t][0], copies)
                - clocks_of_lanes(t, rows, True, 2 if t in ('IQ1_S', 'IQ1_M', 'IQ3_S') else 4)
            )
        )
        if persistent:  # it is brought before the first weight is multiplied
            c = {k: v + weights / 1024 * clocks_to_bring(t, copies) / SHARE for k, v in c.items()}
        else:
            c['l'] += (
                weights * clocks_to_bring(t, copies) / (threads_of(t) // geometry(t)[3] * outs_of(t, rows) * INPUTS)
            )
    if narrow_x:  # of x: a scale a part, and sums; their lanes lie beside one another
        parts = weights / 1024
        c['l'] -= parts * (2 if t not in SUPER else 1) * (clocks_of_lanes(t, rows, False) - 1)
    return c, weights


def kernels_of(path, kernels, rows):
    code, used, out = sass.disassembled(path), resources(path), {}
    for name, ops in code.items():
        m = re.fullmatch(r'(product|persistent)_(\w+)_%d' % rows, name)
        if not m or m.group(2) in ('F32', 'F16', 'BF16') or not re.search(kernels, name):
            continue
        t, persistent = m.group(2), m.group(1) == 'persistent'
        values, size, piece = geometry(t)[:3]
        loop = max(
            sass.loops(ops), key=lambda x: (sum('IDP' in o for _, o in x), -len(x))
        )  # not what multiplies a row's last blocks
        registers, shared = used.get(name, (64, 0))
        threads, copies = threads_of(t), t in BOOKS and copies_of(t, rows, shared)
        if persistent:
            threads, copies, shared = (
                512,
                32,
                4 * BOOKS[t][0] * 32 + 512 // 32 * outs_of(t, rows) * slots(t) * SLOT(piece) + 1056,
            )
        c, weights = count(loop, t, rows, copies, persistent)
        n_bytes = weights * size / values
        flight = (
            (slots(t) - 1) * piece * outs_of(t, rows) * (2 if t not in SUPER else 1)
            if any('LDGSTS' in o for _, o in loop)
            else 32 * sass.in_flight(loop)[0]
        )
        out[t + (', persistent' if persistent else '')] = len(loop), n_bytes, c, registers, shared, flight, threads
    return out


def rates_of(row, card):
    n, n_bytes, c, registers, shared, flight, threads = row
    sms, ghz, _, kib = CARDS[card]
    rates = {k: n_bytes / v * ghz * sms for k, v in c.items()}
    blocks = min(
        65536 // (threads * ((registers + 7) // 8 * 8)),
        (2048 if kib > 100 else 1536) // threads,
        (kib * 1024 - 16384) // (shared + 1024) if shared else 99,
    )
    rates['f'] = blocks * threads // 32 * flight / LATENCY * sms
    return rates


def bound(row, card):
    rates = rates_of(row, card)
    tightest = min(rates, key=rates.get)
    return '%4.0f %s' % (min(999, 100 * rates[tightest] / CARDS[card][2]), tightest)


def floats_of(path, rows):
    """The bound of float weights: a warp's loads in flight, times the warps that registers leave room for.

    Weights are half of the bytes where both weights and inputs have four bytes.
    """
    code, used, out = sass.disassembled(path), resources(path), {}
    for t, size in FLOATS.items():
        name = 'product_%s_%d' % (t, rows)
        if name not in code:
            continue
        ops = max(sass.loops(code[name]), key=len)
        loads = [sass.width(o.split()[1] if o.startswith('@') else o.split()[0]) for _, o in ops if sass.LOAD.search(o)]
        weights = size * (loads.count(2) if size == 2 else len(loads) // (1 + rows))
        registers, shared = used.get(name, (64, 0))
        out[t] = len(ops), 32 * weights, dict(i=len(ops) / 4, l=len(loads)), registers, shared, 32 * weights, 128
    return out


def table(path, kernels):
    """GB/s by type, for each number of rows that a kernel is made for.

    For IQ1 with one row and two, the rate of the persistent kernel.
    """
    found = [{**floats_of(path, n), **kernels_of(path, kernels, n)} for n in (1, 2, 4, 8)]
    for t in (t for t in found[0] if 'persistent' not in t):
        print(
            '    [NTX_%s] = {%s},'
            % (t, ', '.join('%.0f' % min(rates_of(f.get(t + ', persistent', f[t]), 'H100').values()) for f in found))
        )


def main():
    a = sass.arguments(__doc__, rows=1, table=False)
    if a.table:
        return table(a.library, a.kernels)
    tables = ([('before', kernels_of(a.before, a.kernels, a.rows))] if a.before else []) + [
        ('now', kernels_of(a.library, a.kernels, a.rows))
    ]
    print(
        '| type | %s |'
        % ' | '.join('bytes an instruction, %% of copy on %s, %s' % (', '.join(CARDS), w) for w, _ in tables)
    )
    for t in tables[-1][1]:
        print(
            '| %-7s | %s |'
            % (
                t,
                ' | '.join(
                    '%5.2f, %s' % (r[t][1] / r[t][0], ', '.join(bound(r[t], k) for k in CARDS))
                    for _, r in tables
                    if t in r
                ),
            )
        )


if __name__ == "__main__":
    main()
