#!/bin/bash
# The whole pipeline with a GPU that is none (fake.h): the CPU's text with matrices on the device, on the host and streamed; refusals
# with numbers; a lost device is an error to the client.
. "$(dirname "$0")/../pipeline/lib.sh"
fake=$1
[ -e "$fake" ] || skip "no fake GPU in this build"
model "$tmp/m.gguf" --layers 2 --embd 256 --ff 512 --heads 4 --kv 2 --type Q8_0
run() { timeout 120 "$NTX_BIN/ntx" run "$tmp/m.gguf" "hi" --raw -n 2 --ctx 64 --temp 0 --seed 1 --chunk 65536 "$@" 2>"$tmp/err"; }
run --backend cpu >"$tmp/cpu" || fail "cpu: $(cat "$tmp/err")"

NTX_CUDA_LIBRARY=$tmp/none.so run --backend cuda >/dev/null && fail "--backend cuda without a library works"
grep -q 'backend cuda: the CUDA plug-in cannot be loaded' "$tmp/err" || fail "no reason: $(cat "$tmp/err")"
NTX_CUDA_LIBRARY=$tmp/none.so run --backend auto >"$tmp/auto" || fail "auto: $(cat "$tmp/err")"
grep -q 'computing on the CPU: the CUDA plug-in cannot be loaded' "$tmp/err" || fail "auto does not say why: $(cat "$tmp/err")"
same "$tmp/cpu" "$tmp/auto" "auto without a GPU"

export NTX_CUDA_LIBRARY=$fake
run --backend cuda --stats "$tmp/all" >"$tmp/gpu" || fail "cuda: $(cat "$tmp/err")"
[ "$(stat_of "$tmp/all" backend)" = cuda ] || fail "not on the GPU"
[ "$(stat_of "$tmp/all" bytes_storage)" = 0 ] && [ "$(stat_of "$tmp/all" bytes_device)" -gt 1000000 ] || fail "not all on the GPU: $(cat "$tmp/all")"
same "$tmp/cpu" "$tmp/gpu" "all on the GPU"

run --backend cuda --vram 1 >/dev/null && fail "--vram 1 works"
grep -Eq 'take [0-9.]+ .iB of GPU memory, and the budget is 1 ' "$tmp/err" || fail "no numbers: $(cat "$tmp/err")"
NTX_FAKE_GPU_FAIL=30 run --backend cuda >/dev/null && fail "a lost device goes unnoticed"
grep -q 'GPU, .*lost' "$tmp/err" || fail "a lost device without its reason: $(cat "$tmp/err")"
echo "the CPU's text on the GPU; refusals and a lost device are told"
