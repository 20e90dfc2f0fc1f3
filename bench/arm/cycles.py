#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""cycles.py CPUS PROGRAM ARGS...: estimated cycles of a statically linked PROGRAM for 64-bit Arm.

Counts the instructions that PROGRAM executes between the calls of its functions mark_begin and mark_end, by qemu-user,
and the cycles that llvm-mca gives them on each of CPUS (LLVM's names, with commas between). Branches count as a no-op,
and loads hit the first cache. LLVM_MCA names the program; docs/log/kernels-arm.md has figures.
"""

import os
import re
import subprocess
import sys
import tempfile


def disassembly(program):
    at, marks = {}, {}
    for line in subprocess.run(
        ["aarch64-linux-gnu-objdump", "-d", "--no-show-raw-insn", program], capture_output=True, text=True, check=True
    ).stdout.splitlines():
        m = re.match(r"^([0-9a-f]+) <(mark_begin|mark_end)>:", line)
        if m:
            marks[m[2]] = int(m[1], 16)
        m = re.match(r"^ *([0-9a-f]+):\t(.*)$", line)
        if m:
            at[int(m[1], 16)] = m[2]
    return at, marks


def executed(program, args, marks):
    with tempfile.NamedTemporaryFile("r") as log:
        subprocess.run(
            [
                "qemu-aarch64",
                "-cpu",
                "max,sve128=on,sve256=off,sve512=off,sve1024=off,sve2048=off",
                "-singlestep",
                "-d",
                "exec,nochain",
                "-D",
                log.name,
                program,
            ]
            + args,
            check=True,
        )
        pcs, on = [], False
        for line in log:
            m = re.match(r"Trace \d+: 0x[0-9a-f]+ \[[0-9a-f]+/([0-9a-f]+)/", line)
            pc = int(m[1], 16) if m else None
            if pc == marks["mark_end"]:
                break
            if on and m:
                pcs.append(pc)
            on = on or pc == marks["mark_begin"]
        return pcs


def assembly(text):
    text = re.sub(r"//.*", "", text).split("<")[0].strip()
    op = text.split()[0]
    if op in ("b", "bl", "blr", "br", "ret", "hint", "bti"):
        return "nop"
    if op.startswith("b.") or op in ("cbz", "cbnz", "tbz", "tbnz"):
        return "cmp xzr, xzr"
    return "mov %s #0" % text.split()[1] if op in ("adr", "adrp") else text


def main():
    cpus, program, args = sys.argv[1].split(","), sys.argv[2], sys.argv[3:]
    at, marks = disassembly(program)
    code = [assembly(at[pc]) for pc in executed(program, args, marks)]
    for cpu in cpus:
        r = subprocess.run(
            [
                os.environ.get("LLVM_MCA", "llvm-mca"),
                "-mtriple=aarch64",
                "-mcpu=" + cpu,
                "-mattr=+dotprod,+fullfp16,+i8mm,+sve,+sve2",
                "--iterations=1",
                "--all-views=false",
                "--summary-view",
            ],
            input="\n".join(code) + "\n",
            capture_output=True,
            text=True,
        )
        m = re.search(r"Total Cycles: +(\d+)", r.stdout)
        if not m:
            sys.exit(r.stderr[:800])
        print(cpu, len(code), m[1], flush=True)


main()
