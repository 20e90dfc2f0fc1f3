#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kept state, by kinds of models: each architecture continues from a state on the drive (--state), also after an edit in
# the middle, and keeps K and V beyond memory in a file (--kv-ram), with the same text each time. With NTX_LONG all
# architectures, else one of each kind.
. "$(dirname "$0")/../../lib/test.sh"
[ "$(stat -f -c %T "$tmp")" != tmpfs ] || skip "$tmp lies in memory"
shape="--layers 10 --embd 64 --heads 2 --kv 1 --ff 64 --experts-used 2 --expert-ff 64 --shared-ff 64 --ctx 2048 \
    --type Q8_0 --seed 5"
text=$(words 1300) edit=$(words 900)

# answer OUT PROMPT [options]
answer() {
    local out=$1 prompt=$2; shift 2
    ntx run "$tmp/m.gguf" --raw "$prompt" -n 12 --temp 0 --ctx 1536 --rows 128 --ram 256M \
        --quiet --stats "$tmp/stats" "$@" >"$out" 2>"$tmp/err" || fail "$arch, $*: $(cat "$tmp/err")"
}
lasts() { # the text, and one with another end
    answer "$tmp/plain" "$text"
    answer "$tmp/plain.edit" "$edit another end"
    rm -rf "$tmp/kept"
    answer "$tmp/first" "$text" --state "$tmp/kept"
    same "$tmp/plain" "$tmp/first" "$arch with --state"
    answer "$tmp/second" "$text" --state "$tmp/kept"
    same "$tmp/plain" "$tmp/second" "$arch from a state"
    [ "$(stat_of "$tmp/stats" cached_tokens)" -ge 700 ] ||
        fail "$arch: cached tokens of the same: $(stat_of "$tmp/stats" cached_tokens)"
    answer "$tmp/second" "$edit another end" --state "$tmp/kept"
    same "$tmp/plain.edit" "$tmp/second" "$arch from a state, edited"
    [ "$(stat_of "$tmp/stats" cached_tokens)" -ge 128 ] ||
        fail "$arch: cached tokens after an edit: $(stat_of "$tmp/stats" cached_tokens)"
}
beyond() {
    ntx run "$tmp/m.gguf" --raw x -n 1 --ctx 1536 --ram 256M --kv-ram 1B --state "$tmp/kept" >/dev/null 2>"$tmp/err" &&
        fail "$arch: K and V in one byte"
    local least; least=$(sed -n 's/.*--kv-ram.*take .*(\([0-9]*\) bytes)$/\1/p' "$tmp/err")
    [ -n "$least" ] || fail "$arch: no least is named: $(cat "$tmp/err")"
    rm -rf "$tmp/kept"
    answer "$tmp/part" "$text" --kv-ram "$least" --state "$tmp/kept"
    same "$tmp/plain" "$tmp/part" "$arch with --kv-ram"
    [ "$(stat_of "$tmp/stats" kv_read_bytes)" -gt 0 ] && [ "$(stat_of "$tmp/stats" kv_held_most)" -le "$least" ] ||
        fail "$arch: read $(stat_of "$tmp/stats" kv_read_bytes), held $(stat_of "$tmp/stats" kv_held_most) of $least"
    answer "$tmp/part" "$edit another end" --kv-ram "$least" --state "$tmp/kept"
    same "$tmp/plain.edit" "$tmp/part" "$arch with --kv-ram, from a state"
}

few=("llama" "step35 --experts 4 --window-heads 4 --window 40 --layers 24" \
    "kimi-linear --experts 4 --head-dim 48 --rotated 16 --kv-lora 64 --delta-head 32 --attention-every 2 --layers 20"
     "qwen4exp --experts 4 --head-dim 64 --rotated 32 --delta-head 32 --attention-every 2 --index-most 2 \
         --index-pool 3 --low-rank 32 --layers 20 --gram-layer 3 --gram-heads 4 --gram-entries 500")
many=("gemma4 --window-head 32 --full-kv 1 --window 40 --layers 24" "gpt-oss --experts 4 --window 40 --layers 20" \
    "qwen35 --head-dim 64 --rotated 16 --delta-head 32 --attention-every 3 --layers 24" \
    "qwen3next --experts 4 --head-dim 64 --rotated 16 --delta-head 32 --attention-every 2 --layers 20" \
    "llama4 --experts 4 --attn-chunk 64 --layers 40"
      "deepseek2 --experts 4 --head-dim 48 --rotated 16 --kv-lora 64 --q-lora 32" \
          "deepseek32 --experts 4 --head-dim 48 --rotated 16 --kv-lora 64 --q-lora 32 --index-most 8" \
          "glm-dsa --experts 4 --head-dim 48 --rotated 16 --kv-lora 64 --q-lora 32 --index-most 8 --index-every 2"
      "deepseek4 --experts 4 --head-dim 128 --rotated 32 --q-lora 128 --window 40 --index-most 8 --layers 16" \
          "hy_v4 --experts 4 --head-dim 48 --rotated 16 --kv-lora 64 --q-lora 32 --index-heads 4 --index-most 8" \
          "minimax-m2 --experts 4 --head-dim 64"
      "glm5-next --experts 4 --head-dim 48 --kv-lora 64 --q-lora 32 --delta-head 32 --attention-every 2 --index-most 8 \
          --index-pool 3 --layers 20")
[ -z "${NTX_LONG:-}" ] || few+=("${many[@]}")
for arch in "${few[@]}"; do
    # shellcheck disable=SC2086
    model "$tmp/m.gguf" $shape --arch $arch
    lasts
    beyond
done
finish "what lasts, of ${#few[@]} kinds of models"
