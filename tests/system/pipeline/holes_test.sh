#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Models of full size in sparse files: GLM-5, GLM-5.3-Flash, Qwen3.8-Flash-Next and DeepSeek V4 with holes for weights
# load and write a token in less than 2 GB. Tables, resident weights, chunks and start time are those of the real files.
. "$(dirname "$0")/../../lib/test.sh"
. "$(dirname "$0")/cgroup.sh"
sanitized && skip "a sanitizer's own memory is beyond the cap"
cap=2000000000
cgroup_make memory && memory_limit $cap ||
    left_out "no memory controller of cgroups that we may use: the peak is as told"
under() { if [ -n "$cgroup" ]; then cgroup_run "$@"; else exec "$@"; fi; }
glm5="--arch glm-dsa --layers 78 --embd 6144 --ff 12288 --heads 64 --head-dim 256 --value-dim 256 --kv-lora 512 \
    --rotated 64 --q-lora 2048 --dense 3 --index-heads 32 --index-head 128
    --index-most 2048 --experts 256 --experts-used 8 --expert-ff 2048 --shared-ff 2048 --nextn 1 --vocab-size 154880
    --ctx 202752 --type Q4_K_M"
glm5flash="--arch glm5-next --layers 45 --embd 4096 --ff 12288 --heads 64 --head-dim 256 --value-dim 256 --kv-lora 512 \
    --q-lora 1536 --dense 3 --delta-head 128 --attention-every 4 --index-heads 32
    --index-head 128 --index-pool 16 --index-most 128 --delta-bound 5 --experts 288 --experts-used 8 --expert-ff 2048
    --shared-ff 2048 --nextn 1 --vocab-size 154880 --ctx 1048576 --type Q4_K_M"
next="--arch qwen4exp --layers 48 --embd 2560 --ff 384 --heads 16 --kv 2 --head-dim 256 --rotated 64 --delta-head 128 \
    --delta-heads 32 --delta-keys 16 --index-heads 16 --index-head 128
    --index-pool 16 --index-most 128 --low-rank 320 --gram-layer 2 --gram-heads 8 --gram-entries 20000003
    --experts 512 --experts-used 10 --expert-ff 384 --shared-ff 384 --vocab-size 200000 --ctx 262144 --type Q4_K_M"
v4="--arch deepseek4 --head-dim 512 --rotated 64 --window 128 --hashed 3 --index-heads 64 --index-head 128 \
    --experts-used 6 --vocab-size 129280 --ctx 1048576 --type MXFP4"
flash="$v4 --layers 43 --embd 4096 --heads 64 --q-lora 1024 --o-parts 8 --o-lora 1024 --index-most 512 --experts 256 \
    --expert-ff 2048 --shared-ff 2048"
pro="$v4 --layers 61 --embd 7168 --heads 128 --q-lora 1536 --o-parts 16 --o-lora 1024 --index-most 1024 --experts 384 \
    --expert-ff 3072 --shared-ff 3072"
shapes=("$flash" "$glm5" "$glm5flash" "$next")
[ -z "${NTX_LONG:-}" ] || shapes+=("$pro") # as flash, but larger
for shape in "${shapes[@]}"; do
    # shellcheck disable=SC2086
    "$NTX_BIN/ntx-mkmodel" --holes --kv 1 $shape "$tmp/m.gguf" >"$tmp/made" 2>&1 ||
        { left_out "the file system takes no file so long: $(tail -1 "$tmp/made")"; continue; }
    size=$(stat -c %s "$tmp/m.gguf")
    began=$SECONDS
    (under "$NTX_BIN/ntx" run "$tmp/m.gguf" "Once" --raw --ignore-eos -n 1 --ram 1800M --ctx 1024 --stats "$tmp/s" \
        --quiet >"$tmp/out" 2>"$tmp/err") || fail "$((size >> 30)) GiB: $(cat "$tmp/err")"
    peak=$(stat_of "$tmp/s" peak_bytes)
    echo "$((size >> 30)) GiB: $((SECONDS - began)) s, peak $((peak >> 20)) MiB"
    [ -z "$cgroup" ] || echo "the group's peak so far $(($(memory_peak) >> 20)) MiB, limit hit $(memory_hits) times"
    [ "$(stat_of "$tmp/s" generated_tokens)" = 1 ] || fail "no token"
    [ "$peak" -lt $cap ] || fail "peak $peak"
    [ -z "$cgroup" ] || [ "$(memory_hits)" = 0 ] || fail "the limit was hit"
    rm "$tmp/m.gguf"
done
finish "full sizes load"
