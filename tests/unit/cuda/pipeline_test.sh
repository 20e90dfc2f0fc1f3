#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The whole pipeline with a simulated GPU (fake.h). It gives the CPU's text with matrices on the device, on the host and
# streamed, when sampled from the best logits, with skipped layers, with experts in frames, and with packed models.
# Refusals have numbers; a lost device is an error for the client, and a new ntx-computed works.
. "$(dirname "$0")/../../lib/test.sh"
fake=$1
[ -e "$fake" ] || skip "no fake GPU in this build"
model "$tmp/m.gguf" --layers 2 --embd 256 --ff 512 --heads 4 --kv 2 --type Q8_0
run() {
    timeout $((120 * $(patience))) "$NTX_BIN/ntx" run "$tmp/m.gguf" "${prompt:-hi}" --raw -n 2 --ctx 64 --temp 0 \
        --seed 1 --chunk 65536 --rows 8 "$@" 2>"$tmp/err"
}
# pair NAME [options]: the GPU's text is the CPU's
pair() {
    local name=$1; shift
    run --backend cpu "$@" >"$tmp/cpu" || fail "cpu, $name: $(cat "$tmp/err")"
    run --backend cuda --stats "$tmp/stats" "$@" ${gpu_options:-} >"$tmp/gpu" || fail "cuda, $name: $(cat "$tmp/err")"
    [ "$(stat_of "$tmp/stats" backend)" = cuda ] || fail "$name: not on the GPU"
    same "$tmp/cpu" "$tmp/gpu" "$name"
}
run --backend cpu >"$tmp/cpu" || fail "cpu: $(cat "$tmp/err")"

NTX_CUDA_LIBRARY=$tmp/none.so run --backend cuda >/dev/null && fail "--backend cuda without a library works"
grep -q 'backend cuda: the cuda plug-in cannot be loaded' "$tmp/err" || fail "no reason: $(cat "$tmp/err")"
NTX_CUDA_LIBRARY=$tmp/none.so run --backend auto >"$tmp/auto" || fail "auto: $(cat "$tmp/err")"
grep -q 'computing on the CPU: the cuda plug-in cannot be loaded' "$tmp/err" ||
    fail "auto does not say why: $(cat "$tmp/err")"
same "$tmp/cpu" "$tmp/auto" "auto without a GPU"

# On small random models prompts through F16 and the CPU's 8 bits may choose different words: without the matrix units,
# bits are compared.
export NTX_CUDA_LIBRARY=$fake NTX_FAKE_GPU_NO_DENSE=1
pair "all on the GPU"
[ "$(stat_of "$tmp/stats" bytes_storage)" = 0 ] && [ "$(stat_of "$tmp/stats" bytes_device)" -gt 1000000 ] ||
    fail "not all on the GPU: $(cat "$tmp/stats")"
pair "sampled" --temp 0.9 --top-k 30 --top-p 0.9 --repeat-penalty 1.3 -n 4
pair "KV in Q8_0" --kv-type q8_0
gpu_options="--link h2d=100M" pair "an emulated link"
gpu_options="--vram 2M" pair "in tiers"
[ "$(stat_of "$tmp/stats" bytes_host)" -gt 100000 ] && [ "$(stat_of "$tmp/stats" bytes_device)" -gt 100000 ] ||
    fail "not in two tiers: $(cat "$tmp/stats")"
# A GPU that shares the host's memory: weights are used in place, and one budget covers weights, KV and work buffers.
export NTX_FAKE_GPU_INTEGRATED=1
pair "unified memory"
[ "$(stat_of "$tmp/stats" bytes_device)" = 0 ] && [ "$(stat_of "$tmp/stats" bytes_storage)" = 0 ] &&
    [ "$(stat_of "$tmp/stats" bytes_host)" -gt 1000000 ] || fail "weights twice: $(cat "$tmp/stats")"
mv "$tmp/m.gguf" "$tmp/small.gguf"
model "$tmp/m.gguf" --layers 10 --embd 256 --ff 512 --heads 4 --kv 2 --type Q8_0
pair "unified memory, streamed" --ram 5M
[ "$(stat_of "$tmp/stats" bytes_device)" = 0 ] && [ "$(stat_of "$tmp/stats" bytes_storage)" -gt 1000000 ] ||
    fail "nothing is streamed: $(cat "$tmp/stats")"
run --backend cuda --ram 3300K >/dev/null && fail "KV and work of the GPU are beyond --ram"
grep -q 'memory for the GPU beside all else, and the budget is 3.2 MiB: .* larger --ram' "$tmp/err" ||
    fail "no numbers: $(cat "$tmp/err")"
mv "$tmp/small.gguf" "$tmp/m.gguf"
run --backend cpu >"$tmp/cpu" || fail "cpu: $(cat "$tmp/err")"
unset NTX_FAKE_GPU_INTEGRATED

# Drafts by states of layers, which the GPU delivers, and by the model's own block do not change the text.
mv "$tmp/m.gguf" "$tmp/small.gguf"
model "$tmp/e.gguf" --arch eagle3 --layers 1 --embd 256 --heads 4 --kv 4 --ff 128 --taps 1,2,4 --type F32 \
    --bare --nextn-agrees 0.05
check_drafts() { # check_drafts WHAT DRAFT
    gpu_options="--draft $2 --draft-nodes 4" pair "drafts by $1" -n 12 --temp 0.7 --ignore-eos
    awk -v x="$(stat_of "$tmp/stats" accepted_per_pass)" 'BEGIN {exit !(x > 1.3)}' ||
        fail "drafts by $1: $(cat "$tmp/stats")"
}
model "$tmp/m.gguf" --layers 4 --embd 256 --ff 512 --heads 4 --kv 2 --type Q8_0 --seed 5 --nextn-agrees 0.1
check_drafts states "$tmp/e.gguf"
own=(--embd 256 --heads 4 --kv 2 --head-dim 64 --experts 4 --experts-used 2 --expert-ff 256 --shared-ff 256 \
    --type Q8_0 --nextn 1 --nextn-agrees 0.1)
model "$tmp/m.gguf" --arch glm4moe --layers 3 --dense 1 --rotated 16 "${own[@]}"
check_drafts "its own block" nextn
model "$tmp/m.gguf" --arch qwen3next --layers 4 "${own[@]}"
run --backend cuda --draft nextn >/dev/null && fail "drafts on a recurrent state of the GPU"
grep -q "draft FILE or nextn: layers of a qwen3next model keep a recurrent state, and a GPU's does not go back" \
    "$tmp/err" || fail "no reason: $(cat "$tmp/err")"
mv "$tmp/small.gguf" "$tmp/m.gguf"
run --backend cpu >"$tmp/cpu" || fail "cpu: $(cat "$tmp/err")"
unset NTX_FAKE_GPU_NO_DENSE
run --backend cuda >/dev/null || fail "through the matrix units: $(cat "$tmp/err")"
export NTX_FAKE_GPU_NO_DENSE=1

# Memory that is not locked costs only speed, and a message says so.
# unlocked LOCKS: grants so many locks; $bytes is the memory without one
unlocked() {
    NTX_FAKE_GPU_NO_LOCK=$1 run --backend cuda --stats "$tmp/stats" >"$tmp/gpu" || fail "$1 locks: $(cat "$tmp/err")"
    same "$tmp/cpu" "$tmp/gpu" "$1 locks"
    grep -q 'copies to the GPU are slow: .* cannot be locked for them (the fake GPU locks no more)' "$tmp/err" ||
        fail "a refused lock goes unsaid: $(cat "$tmp/err")"
    bytes=$(stat_of "$tmp/stats" bytes_unlocked)
}
unlocked 1 # the region is locked; locks of work buffers are refused
rows=$bytes
unlocked 0
[ "$rows" -gt 0 ] && [ "$bytes" -gt "$rows" ] || fail "$bytes bytes without a lock, $rows with one"

# Missing graphs cost only speed, too; the text is the same with and without them.
NTX_FAKE_GPU_NO_GRAPHS=1 run --backend cuda >"$tmp/gpu" || fail "no graphs: $(cat "$tmp/err")"
same "$tmp/cpu" "$tmp/gpu" "no graphs"
grep -q "the GPU's kernels are launched one by one, not as graphs (the fake GPU records nothing)" "$tmp/err" ||
    fail "no graphs, and nothing said: $(cat "$tmp/err")"
NTX_FAKE_GPU_NO_GRAPHS=1 run --backend cuda --gpu-graphs off >"$tmp/gpu" || fail "graphs off: $(cat "$tmp/err")"
same "$tmp/cpu" "$tmp/gpu" "graphs off"
grep -q "not as graphs" "$tmp/err" && fail "graphs off, and something said: $(cat "$tmp/err")"

run --backend cuda --vram 1B >/dev/null && fail "--vram 1B works"
grep -Eq 'take [0-9.]+ .iB \([0-9]+ bytes\) of GPU memory, and the budget is 1 ' "$tmp/err" ||
    fail "no numbers: $(cat "$tmp/err")"
run --backend cuda --skip-verify 4 --skip script:3 >/dev/null && fail "--skip-verify works on the GPU"
grep -q 'backend cuda: only the CPU looks closely' "$tmp/err" || fail "no reason: $(cat "$tmp/err")"
run --backend cuda --kv-ram 1M --state "$tmp/kept" >/dev/null && fail "--kv-ram works on the GPU"
grep -q 'backend cuda: its KV lies in its own memory, which --kv-ram does not reach' "$tmp/err" ||
    fail "no reason: $(cat "$tmp/err")"

# Doctor measures the GPU with the same plug-in, and the plan uses these rates. The cost model decides how much is
# copied: everything, with a CPU as slow as this.
export XDG_CACHE_HOME=$tmp/cache
timeout $((60 * $(patience))) "$NTX_BIN/ntx" doctor --dir "$tmp" --seconds 1 >"$tmp/doctor" 2>&1 ||
    fail "doctor: $(cat "$tmp/doctor")"
python3 - "$tmp/cache/ntx/profile.json" <<'PY' || fail "the profile has no GPU's rates"
import json, sys
p = json.load(open(sys.argv[1]))
g = p["gpu"]
# gflops: the fake has no matrix units
assert g["name"] == "fake GPU" and g["gb_s"] > 0 and g["h2d_gb_s"] > 0 and "gflops" not in g, g
types = {k["type"] for k in p["kernels"]}
# every type is measured, so no prediction for this card is an estimate
assert types == set(g["rates"]) and len(types) > 20, (types, g["rates"])
assert all(r > 0 for r in g["rates"].values()), g["rates"]
p["kernels"] = [{"type": "*", "rows": 1, "gb_s": 0.001}]
json.dump(p, open(sys.argv[1], "w"))
PY
gpu_options="--vram 2M --trace $tmp/t.json" pair "all copied, by the profile"
python3 - "$tmp/t.json" "$(stat_of "$tmp/stats" bytes_host)" \
    "$(stat_of "$tmp/stats" passes)" <<'PY' || fail "the trace's copies"
import json, sys
t = json.load(open(sys.argv[1]))
track = next(e["tid"] for e in t["traceEvents"] if e["ph"] == "M" and e["args"]["name"] == "copies")
copies = sorted(
    (e["ts"], e["ts"] + e["dur"], e["args"]["bytes"])
    for e in t["traceEvents"]
    if e["ph"] == "X" and e["pid"] == 3 and e["tid"] == track
)
host, passes = int(sys.argv[2]), int(sys.argv[3])
assert t["otherData"]["missed"] == 0 and copies, t["otherData"]
assert all(a[1] <= b[0] + 0.002 for a, b in zip(copies, copies[1:])), "copies overlap on one link"
copied = sum(c[2] for c in copies)
assert 0.5 * host * passes < copied <= host * passes, (copied, host, passes)  # embedding entries are not copied
PY
[ "$(stat_of "$tmp/stats" predicted_tok_s)" != 0.0 ] || fail "nothing is predicted: $(cat "$tmp/stats")"
unset XDG_CACHE_HOME

# Layer skip: the CPU decides by the states that the GPU delivers.
model "$tmp/m.gguf" --layers 6 --embd 256 --ff 256 --heads 4 --kv 2 --type Q8_0
pair "skipped layers" --skip script:3,4 -n 4 --ignore-eos
case $(stat_of "$tmp/stats" skipped_layers_per_token) in 0|0.0|"") fail "nothing was skipped: $(cat "$tmp/stats")";; \
    esac

# Experts: all on the GPU; then some of them in too few frames of the host.
model "$tmp/m.gguf" --layers 3 --embd 256 --heads 4 --kv 2 --arch qwen3moe --experts 12 --experts-used 2 \
    --expert-ff 256 --type Q8_0 --seed 3
pair "experts on the GPU"
[ "$(stat_of "$tmp/stats" bytes_host)" -lt 100000 ] || fail "experts are not on the GPU: $(cat "$tmp/stats")"
need=$(run --backend cuda --vram 1B >/dev/null; sed -n 's/.*take [^(]*(\([0-9]*\) bytes) of GPU memory.*/\1/p' \
    "$tmp/err")
gpu_options="--vram $((need + 6000000)) --ram 24M" pair "experts in frames" -n 4 --ignore-eos
[ "$(stat_of "$tmp/stats" bytes_device)" -gt 1000000 ] && [ "$(stat_of "$tmp/stats" bytes_host)" -gt 1000000 ] ||
    fail "experts are not in two tiers: $(cat "$tmp/stats")"

# Windows, sinks and biases: the same.
model "$tmp/m.gguf" --layers 3 --embd 256 --heads 4 --kv 2 --arch gpt-oss --experts 8 --experts-used 3 --expert-ff 256 \
    --window 6 --type MXFP4 --seed 3
pair "gpt-oss on the GPU"
need=$(run --backend cuda --vram 1B >/dev/null; sed -n 's/.*take [^(]*(\([0-9]*\) bytes) of GPU memory.*/\1/p' \
    "$tmp/err")
gpu_options="--vram $((need + 1500000)) --ram 24M" pair "gpt-oss in frames" -n 4 --ignore-eos
[ "$(stat_of "$tmp/stats" bytes_device)" -gt 100000 ] && [ "$(stat_of "$tmp/stats" bytes_host)" -gt 100000 ] ||
    fail "gpt-oss is not in two tiers: $(cat "$tmp/stats")"

# An indexer's top-k of positions or of blocks, delta nets with a decay per key, hyper-connections, pooled K, and
# n-gram embeddings: with experts in frames.
moe="--layers 4 --embd 256 --heads 4 --kv 2 --experts 8 --experts-used 3 --expert-ff 256 --shared-ff 256 --type Q8_0 \
    --seed 3"
latents="--dense 1 --head-dim 96 --rotated 32 --kv-lora 256"
for arch in "step35 --dense 1 --head-dim 64 --window-heads 6 --window 3 --qk-norms" \
    "glm-dsa $latents --q-lora 128 --index-most 3 --index-every 2" \
    "glm5-next --dense 1 --head-dim 96 --kv-lora 256 --q-lora 128 --delta-head 32 --attention-every 2 --index-most 1 \
        --index-pool 2" \
    "qwen4exp --head-dim 64 --rotated 32 --delta-head 32 --attention-every 2 --index-most 1 --index-pool 2 \
        --low-rank 32 --gram-layer 1 --gram-heads 4 --gram-entries 500" \
    "deepseek4 --kv 1 --hashed 2 --head-dim 128 --rotated 32 --q-lora 128 --window 4 --index-most 1"; do
    # shellcheck disable=SC2086
    model "$tmp/m.gguf" $moe --arch $arch
    need=$(run --backend cuda --vram 1B >/dev/null; sed -n 's/.*take [^(]*(\([0-9]*\) bytes) of GPU memory.*/\1/p' \
        "$tmp/err")
    prompt="hi there you" gpu_options="--vram $((need + 2500000)) --ram 32M" pair "${arch%% *} in frames" -n 3 \
        --ignore-eos
    [ "$(stat_of "$tmp/stats" bytes_device)" -gt 100000 ] && [ "$(stat_of "$tmp/stats" bytes_host)" -gt 100000 ] ||
        fail "$arch: not in two tiers: $(cat "$tmp/stats")"
done

# Packed: all on the GPU; then groups in windows of the host, read on demand. They are selected by gates, by prediction,
# and by the prompt.
# --down-type: down in columns, which the GPU computes; groups with rows of blocked types stay with the host.
model "$tmp/d.gguf" --layers 8 --embd 256 --ff 1024 --heads 4 --kv 2 --type Q8_0 --seed 3
ntx pack "$tmp/d.gguf" "$tmp/m.gguf" --group 16K --down-type Q8_0 --force --quiet || fail "pack"
for mode in off threshold=0.02 topk=0.3 predicted=0.3,gate prompt=0.3; do
    gpu_options="" pair "packed on the GPU, $mode" --ffn-sparse $mode
    [ "$(stat_of "$tmp/stats" bytes_host)" -lt 100000 ] || fail "$mode: groups are not on the GPU: $(cat "$tmp/stats")"
    need=$(run --backend cuda --vram 1B --ffn-sparse $mode >/dev/null; sed \
        -n 's/.*take [^(]*(\([0-9]*\) bytes) of GPU memory.*/\1/p' "$tmp/err")
    gpu="--backend cuda --vram $((need + 5200000)) --ffn-sparse $mode"
    # shellcheck disable=SC2086
    least=$(run $gpu --ram 1M >/dev/null; sed -n 's/.*budget that would do is [^(]*(\([0-9]*\) bytes).*/\1/p' \
        "$tmp/err")
    gpu_options="--vram $((need + 5200000)) --ram $((least + 500000))"
    pair "packed in tiers, $mode" --ffn-sparse $mode -n 4 --ignore-eos
    [ "$(stat_of "$tmp/stats" bytes_device)" -gt 1000000 ] && [ "$(stat_of "$tmp/stats" bytes_storage)" -gt 500000 ] ||
        fail "$mode: not in tiers: $(cat "$tmp/stats")"
    # by the profile in which the CPU is slow
    prompt="hi there you" XDG_CACHE_HOME=$tmp/cache pair "packed in tiers, copied, $mode" --ffn-sparse $mode -n 6 \
        --ignore-eos
done

# The device is lost in the middle of an answer. Under a supervisor, ntx-computed ends, and a new one opens the device
# again.
NTX_FAKE_GPU_FAIL=600 run --backend cuda -n 30 --ignore-eos >/dev/null && fail "a lost device goes unnoticed"
grep -q 'GPU, .*lost since call' "$tmp/err" || fail "a lost device without its reason: $(cat "$tmp/err")"
export NTX_RUNTIME=$tmp/rt
NTX_FAKE_GPU_FAIL=900 timeout $((60 * $(patience))) "$NTX_BIN/ntx" up "$tmp/m.gguf" --backend cuda --ctx 64 \
    --rows 8 2>"$tmp/up" &
up=$!
loaded() { "$NTX_BIN/ntx" status --json 2>/dev/null | grep -Eq '"state": *"ready"'; }
wait_for 30 loaded || fail "not up: $(cat "$tmp/up")"
for i in 1 2 3 4 5 6 7 8; do
    "$NTX_BIN/ntx" generate hi --raw -n 30 --ignore-eos --temp 0 >/dev/null 2>"$tmp/err" || break
done
grep -q 'GPU, .*lost since call' "$tmp/err" || fail "the client is not told: $(cat "$tmp/err"; cat "$tmp/up")"
wait_for 20 gone "$up" || fail "ntx up goes on without ntx-computed: $(cat "$tmp/up")"
wait "$up" && fail "ntx up ends as if all were well"
grep -q 'the GPU is lost' "$tmp/up" || fail "why it ended is not told: $(cat "$tmp/up")"
timeout $((60 * $(patience))) "$NTX_BIN/ntx" up "$tmp/m.gguf" --backend cuda --ctx 64 --rows 8 2>"$tmp/up" &
up=$!
wait_for 30 loaded || fail "not up again: $(cat "$tmp/up")"
"$NTX_BIN/ntx" generate hi --raw -n 3 --temp 0 >/dev/null 2>"$tmp/err" || fail "not well again: $(cat "$tmp/err")"
"$NTX_BIN/ntx" stop 2>/dev/null
wait "$up"
echo \
    "the CPU's text on the GPU: resident, tiered, sampled, skipping, experts, packed; refusals and a lost device are" \
    "reported, a new start works"
