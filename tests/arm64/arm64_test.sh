#!/bin/bash
# arm64_test.sh [--all]: cross-builds for 64-bit Arm what needs no other program, and runs it by qemu-user: unpacking of the types, which has the same
# bits everywhere, quantising, and the kernels against the plain ones. As a Cortex-A76, and as a processor with everything. --all: every test that a cross build has.
set -eu
skip() { echo "skipped: $*"; exit 77; }
fail() { echo "FAILED: $*" >&2; exit 1; }
. "$(dirname "$0")/lib.sh"
arm64_configured
targets=(test_cpu_matmul test_cpu_ops test_cpu_columns test_model-quant test_model-quantize)
which='^(cpu_matmul|cpu_ops|cpu_columns|model-quant|model-quantize)$'
if [ "${1:-}" = --all ]; then
    targets=(all)
    which=.
fi
arm64_build "${targets[@]}"
for cpu in cortex-a76 max; do
    echo "as $cpu"
    QEMU_CPU=$cpu ctest --test-dir "$arm64_dir" -j "$(nproc)" -R "$which" --output-on-failure --no-tests=error
done
