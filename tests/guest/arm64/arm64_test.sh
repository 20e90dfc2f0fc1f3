#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# arm64_test.sh [--all]: cross-builds tests for 64-bit Arm and runs them by qemu-user, as a Cortex-A76 and as a CPU with
# all extensions: unpacking of types (the same bits everywhere), quantising, and kernels against the plain ones.
# Then each emulated processor has the logits of this machine, alone and as one of two machines that share a model
# (tests/unit/ranks/pair.c). --all, and tests/run --long, run every test of the cross build: unit tests, golden tests
# and tests of equal bits, and with pages of 16 and 64 KiB those that depend on the page size. Tests that start ntx's
# programs are skipped, since qemu-user filters no system calls. Slow tests use fewer models (tests/lib/emulated.h).
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
        -j "$(nproc)" -R '^(shm-(counters|monitor|memlimit|region)|iod-(core|demands)|pass-(fail|parts)|plan-cache)$' \
        --output-on-failure --no-tests=error
done
