#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kernels_test.sh: cross-compiles only the kernels for 64-bit Arm, which needs no libraries for Arm, and runs them by
# qemu-user. A few shapes of every type have the bits of plain C and of this machine: as a Cortex-A76 (NEON), as a
# processor with all extensions (i8mm), and with pages of 16 and 64 KiB. Weights in high and low bits have the whole
# types' bits on both processors. arm64_test.sh tests more.
set -eu
skip() { echo "skipped: $*"; exit 77; }
fail() { echo "FAILED: $*" >&2; exit 1; }
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    command -v $tool >/dev/null || skip "no $tool (crossbuild-essential-arm64, qemu-user)"
done
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$NTX_SOURCE"
compile() {
    aarch64-linux-gnu-gcc -ffp-contract=off -std=gnu17 -D_GNU_SOURCE -O1 -Wall -Wextra -Wshadow -Werror \
        -Wno-psabi -fno-var-tracking -I. -march="$2" -c "$1" -o "$here/${into:-.}/$(basename "$1").o" || fail "$1"
}
compile computed/cpu/pick.c armv8-a
compile computed/cpu/generic.c armv8-a
compile computed/cpu/interleaved_row.c armv8-a
compile computed/cpu/neon.c armv8.2-a+dotprod # as computed/cpu/CMakeLists.txt has it
compile computed/cpu/neon_simple.c armv8.2-a+dotprod
compile computed/cpu/neon_super.c armv8.2-a+dotprod
compile computed/cpu/neon_many.c armv8.2-a+dotprod
compile computed/cpu/neon_many_super.c armv8.2-a+dotprod
compile computed/cpu/neon_interleaved.c armv8.2-a+dotprod
compile computed/cpu/neon_interleaved_super.c armv8.2-a+dotprod
compile computed/cpu/i8mm.c armv8.2-a+dotprod+i8mm
compile computed/cpu/planes.c armv8-a
compile model/quant.c armv8-a
mkdir "$here/model" "$here/tests"
link() { # PROGRAM: of tests/unit/cpu/PROGRAM.c
    aarch64-linux-gnu-gcc -static "$here"/*.o "$here/model/planes.c.o" "$here/tests/$1.c.o" -lm -o "$here/$1"
}
into=model compile model/planes.c armv8-a
into=tests compile tests/unit/cpu/matmul.c armv8-a
into=tests compile tests/unit/cpu/planes.c armv8-a
link matmul
link planes
"$NTX_BUILD/tests/test_cpu-matmul" few >"$here/want"
for as in cortex-a76:4096:neon max:4096:i8mm max:16384:i8mm max:65536:i8mm; do
    IFS=: read -r cpu page best <<<"$as"
    qemu-aarch64 -cpu "$cpu" -p "$page" "$here/matmul" few >"$here/got" 2>&1 || fail "$as: $(cat "$here/got")"
    cmp -s "$here/want" "$here/got" || fail "$as: other bits than this machine's: $(diff "$here/want" "$here/got")"
    [ "$(qemu-aarch64 -cpu "$cpu" -p "$page" "$here/matmul" best)" = "$best $page" ] ||
        fail "$as: $(qemu-aarch64 -cpu "$cpu" -p "$page" "$here/matmul" best) was checked"
done
for cpu in cortex-a76 max; do
    qemu-aarch64 -cpu "$cpu" "$here/planes" || fail "$cpu: weights in high and low bits"
done
echo "$(wc -l <"$here/want") types"
