#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a disassembly shows of kernels, without a card.

    bench/sass.py [--kernels REGEX] LIBRARY [LIBRARY-BEFORE]

For each kernel (cuobjdump -sass; the plug-in, build/bin/libntx-cuda.so): instructions of its two longest innermost
loops, or of all of it without a loop; loads from global memory by width in bytes (16x4: sixteen of four); the longest
row of loads that are issued before the first is waited for (a load's result is needed where one of its registers is
read, and all earlier loads of the row are then in flight); spills. No time is predicted: only a card shows that. Two
libraries: both, side by side.
"""

import argparse
import re
import shutil
import subprocess
import sys

LINE = re.compile(r'^\s+/\*([0-9a-f]{4,})\*/\s+(.*?);')
FUNCTION = re.compile(r'Function : (\S+)')
LOAD = re.compile(r'\bLDG\.E\S*')


def plain(mangled):
    m = re.match(r'_Z[A-Z]*?(\d+)(.*)', mangled)
    return m.group(2)[: int(m.group(1))] if m else mangled


def dumped(what, path):
    tool = shutil.which('cuobjdump') or shutil.which('/usr/local/cuda/bin/cuobjdump')
    if not tool:
        sys.exit('no cuobjdump: it is part of the CUDA toolkit (cuda-cuobjdump)')
    r = subprocess.run([tool, what, path], capture_output=True, text=True)
    if r.returncode:
        sys.exit('%s: %s' % (path, r.stderr.strip()))
    return r.stdout.splitlines()


def disassembled(path):
    kernels, now = {}, None
    for line in dumped('-sass', path):
        if m := FUNCTION.search(line):
            now = kernels.setdefault(plain(m.group(1)), [])
        elif (m := LINE.match(line)) and now is not None:
            now.append((int(m.group(1), 16), m.group(2)))
    return kernels


def width(op):
    m = re.search(r'\.(U8|S8|U16|S16|64|128)\b', op)
    return {'U8': 1, 'S8': 1, 'U16': 2, 'S16': 2, '64': 8, '128': 16}.get(m.group(1), 4) if m else 4


def loops(code):
    """The innermost loops that load, or all of the code where there is none."""
    at = {a: i for i, (a, _) in enumerate(code)}
    found = []
    for i, (a, op) in enumerate(code):
        m = re.search(r'\bBRA\b.*?0x([0-9a-f]+)', op)
        to = at.get(int(m.group(1), 16)) if m else None
        if to is not None and to < i and any(LOAD.search(o) for _, o in code[to : i + 1]):
            found.append((to, i + 1))
    inner = [x for x in found if not any(y != x and x[0] <= y[0] and y[1] <= x[1] for y in found)]
    return [code[x:y] for x, y in inner] or [code]


def registers(op, n):
    """Registers that a load of n bytes writes."""
    m = re.search(r'\bR(\d+)\b', op.split(',')[0])
    return {'R%d' % (int(m.group(1)) + k) for k in range((n + 3) // 4)} if m else set()


def in_flight(code):
    best, pending, row = (0, 0), set(), []
    for _, op in code:
        used = set(re.findall(r'\bR\d+\b', op))
        if LOAD.search(op):
            n = width(LOAD.search(op).group(0))
            reads = set(re.findall(r'\bR\d+\b', ','.join(op.split(',')[1:])))
            if reads & pending:
                pending, row = set(), []
            pending |= registers(op, n)
            row.append(n)
            best = max(best, (sum(row), len(row)))
        elif used & pending:
            pending, row = set(), []
    return best


def figures(code):
    spills = sum('STL' in op for _, op in code)
    for loop in sorted(loops(code), key=len)[-2:]:
        loads = [width(LOAD.search(op).group(0)) for _, op in loop if LOAD.search(op)]
        by = ' '.join('%dx%d' % (loads.count(w), w) for w in (16, 8, 4, 2, 1) if w in loads)
        flight = in_flight(loop)
        yield '%5d  %-24s %3d loads, %4d bytes%s' % (
            len(loop),
            by,
            flight[1],
            flight[0],
            '  %d SPILLS' % spills if spills else '',
        )


def arguments(about, **numbers):
    p = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--kernels', default='', metavar='REGEX')
    for name, n in numbers.items():
        if isinstance(n, bool):
            p.add_argument('--' + name, action='store_true')
        else:
            p.add_argument('--' + name, type=int, default=n)
    p.add_argument('library')
    p.add_argument('before', nargs='?')
    return p.parse_args()


def main():
    a = arguments(__doc__)
    now, before = disassembled(a.library), disassembled(a.before) if a.before else {}
    print('%-28s %5s  %-24s %s' % ('kernel', 'loop', 'loads of it', 'in flight, a thread'))
    for name in sorted(k for k in now if re.search(a.kernels, k)):
        for title, code in ((name + ', before', before.get(name)), (name, now[name])):
            for line in figures(code) if code else ():
                print('%-28s %s' % (title[:28], line))


if __name__ == "__main__":
    main()
