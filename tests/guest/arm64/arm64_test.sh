#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# arm64_test.sh [--all]: cross-builds for 64-bit Arm what needs no other program, and runs it by qemu-user: unpacking of
# the types, which has the same bits everywhere, quantising, and the kernels against the plain ones. As a Cortex-A76,
# and as a processor with everything; then each of them beside this machine: alone they have the same logits, and so
# have both as two machines that share a model (tests/unit/ranks/pair.c). --all, and tests/run --long: every test that a
# cross build has: unit tests, golden ones, and those of equal bits; and with pages of 16 and of 64 KiB those that
# depend on it. Those that start ntx's programs are skipped: qemu-user filters no system calls; and what would take an
# emulator many minutes takes a part of its models there (tests/lib/emulated.h).
set -eu
skip() { echo "skipped: $*"; exit 77; }
fail() { echo "FAILED: $*" >&2; exit 1; }
. "$(dirname "$0")/lib.sh"
nm -D "$NTX_BIN/ntx-computed" 2>/dev/null | grep -q '__asan_init\|__tsan_init' &&
    skip "the cross build is not sanitized: the build without sanitizers runs this"
arm64_configured
targets=(test_cpu-matmul test_cpu-ops test_cpu-columns test_model-quant test_model-quantize test_ranks-pair)
which='^(cpu-matmul|cpu-ops|cpu-columns|model-quant|model-quantize)$'
if [ "${1:-}" = --all ] || [ "${NTX_LONG:-}" ]; then
    targets=(all)
    which=.
fi
arm64_build "${targets[@]}"
for cpu in cortex-a76 max; do
    echo "as $cpu"
    QEMU_CPU=$cpu ctest --test-dir "$arm64_dir" -j "$(nproc)" -R "$which" --output-on-failure --no-tests=error
    "$NTX_BUILD/tests/test_ranks-pair" env QEMU_CPU=$cpu qemu-aarch64 -L "${arm64_root:-/usr/aarch64-linux-gnu}" \
        "$arm64_dir/tests/test_ranks-pair" || fail "beside this machine, as a $cpu"
done
[ "$which" = . ] || exit 0
for page in 16384 65536; do
    echo "with pages of $page bytes"
    QEMU_PAGESIZE=$page QEMU_CPU=max ctest --test-dir "$arm64_dir" \
        -j "$(nproc)" -R '^(shm-(counters|monitor|memlimit|region)|iod-core|pass-(fail|parts)|plan-cache)$' \
        --output-on-failure --no-tests=error
done
