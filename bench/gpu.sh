#!/bin/bash
# All that is to be measured when a GPU is at hand; appends to bench/LOG.md under the card's name.
#
#   bench/gpu.sh [DIRECTORY]     for models (default: a temporary one; the largest is 58 GB, random weights of the right shapes)
#   BIG=no   without the 70B-shaped ones      N=tokens (64)
#
# 1 the tests that need a card, also under compute-sanitizer where that is installed   2 the kernels beside the card's copy rate
# 3 decode and prefill, all on the card, 8B and 70B, Q4_K_M and Q8_0   4 the seeds' table: 70B Q6_K and Q4_K_M with 26 or 36
# of 80 layers' worth of a 24-GB card, the rest in RAM: in place on the CPU.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$here/build} n=${N:-64}
command -v nvidia-smi >/dev/null && card=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1) || card=
[ "$card" ] || { echo "skipped: no NVIDIA driver or no card here"; exit 77; }
dir=${1:-$(mktemp -d)}
mkdir -p "$dir"
[ $# -gt 0 ] || trap 'rm -rf "$dir"' EXIT
out=$dir/results.txt
: >"$out"
say() { echo "$*" | tee -a "$out"; }
cmake --build "$build" --target ntx ntx-computed ntx-iod ntx-predictor ntx-mkmodel ntx_cuda_plugin ntx_gpu_fake test_cuda_kernels test_cuda_pass bench_cuda
plugin=$build/bin/libntx-cuda.so

for t in kernels pass; do
    say "test_cuda_$t: $("$build/tests/test_cuda_$t" "$plugin" 2>&1 | tail -1)"
    command -v compute-sanitizer >/dev/null &&
        say "compute-sanitizer, $t: $(compute-sanitizer --error-exitcode 9 "$build/tests/test_cuda_$t" "$plugin" 2>&1 | tail -1)"
done
"$build/bench/bench_cuda" "$plugin" | tee -a "$out"

shape8="--layers 32 --embd 4096 --ff 14336 --heads 32 --kv 8 --ctx 4096"
shape70="--layers 80 --embd 8192 --ff 28672 --heads 64 --kv 8 --ctx 4096"
measure() { # NAME MODEL [options]: prefill of 512, decode of n
    local name=$1 model=$2; shift 2
    say "$name $*: $("$build/bin/ntx" bench "$model" -p 512 -n "$n" --backend cuda --ctx 1024 --json "$@" 2>&1 | tr -d '\n')"
}
make_model() { [ -e "$2" ] || "$build/bin/ntx-mkmodel" $1 --type "$3" "$2" >/dev/null; }
for type in Q4_K_M Q8_0; do
    make_model "$shape8" "$dir/8b-$type.gguf" $type
    measure "8B $type" "$dir/8b-$type.gguf"
done
if [ "${BIG:-yes}" = yes ]; then
    for type in Q4_K_M Q6_K; do
        make_model "$shape70" "$dir/70b-$type.gguf" $type
        size=$(stat -Lc %s "$dir/70b-$type.gguf")
        measure "70B $type" "$dir/70b-$type.gguf"
        for layers in 26 36; do
            measure "70B $type, $layers of 80 layers" "$dir/70b-$type.gguf" --vram $((size / 80 * layers + (1 << 30)))
        done
    done
fi
{
    echo
    echo "## $(date -u '+%-d %b %Y'): $card, commit $(git -C "$here" rev-parse --short HEAD)"
    echo
    echo "\`bench/gpu.sh\`, $(nproc) CPUs, driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1)."
    echo
    sed 's/^/    /' "$out"
} >>"$here/bench/LOG.md"
echo "appended to bench/LOG.md"
