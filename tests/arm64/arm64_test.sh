#!/bin/bash
# arm64_test.sh [--all]: cross-builds for 64-bit Arm what needs no other program, and runs it by qemu-user: unpacking of the types, which has the same
# bits everywhere, quantising, and the kernels against the plain ones. As a Cortex-A76, and as a processor with everything. NTX_ARM64_ROOT: where the libraries for arm64 were unpacked,
# if they are not installed. --all: every test that a cross build has.
set -eu
for tool in aarch64-linux-gnu-gcc qemu-aarch64 cmake; do
    command -v "$tool" >/dev/null || { echo "skipped: no $tool (crossbuild-essential-arm64, qemu-user)"; exit 77; }
done
root=${NTX_ARM64_ROOT:-}
[ -e "$root/usr/lib/aarch64-linux-gnu/pkgconfig/liburing.pc" ] || { echo "skipped: no libraries for arm64 (dpkg --add-architecture arm64)"; exit 77; }
dir=$NTX_BUILD/arm64
cmake -S "$NTX_SOURCE" -B "$dir" --toolchain "$NTX_SOURCE/cmake/arm64.cmake" -DNTX_ARM64_ROOT="$root" -DNTX_TESTS=ON -DNTX_CLANG=OFF >"$dir.log" 2>&1 || { cat "$dir.log"; exit 1; }
targets=(test_cpu_matmul test_cpu_ops test_cpu_columns test_model-quant test_model-quantize)
which='^(cpu_matmul|cpu_ops|cpu_columns|model-quant|model-quantize)$'
if [ "${1:-}" = --all ]; then
    targets=(all)
    which=.
fi
cmake --build "$dir" -j "$(nproc)" --target "${targets[@]}" >"$dir.log" 2>&1 || { tail -40 "$dir.log"; exit 1; }
if grep 'warning:' "$dir.log"; then exit 1; fi
for cpu in cortex-a76 max; do
    echo "as $cpu"
    QEMU_CPU=$cpu ctest --test-dir "$dir" -j "$(nproc)" -R "$which" --output-on-failure --no-tests=error
done
