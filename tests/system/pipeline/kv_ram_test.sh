#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Contexts beyond memory, --kv-ram SIZE: the text is the same, however few of K and V are in memory, and memory stays
# below SIZE.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/m.gguf" --layers 16 --embd 128 --heads 2 --kv 2 --head-dim 64 --ff 128 --type Q8_0 --ctx 4096 --seed 5
long=$(words 3000)

# answer OUT [options]
answer() {
    local out=$1; shift
    ntx run "$tmp/m.gguf" --raw "$long" -n 24 --temp 0 --ctx 4096 --rows 128 \
        --quiet --stats "$tmp/stats" "$@" >"$out" 2>"$tmp/err" || fail "run $*: $(cat "$tmp/err")"
}
refused() { # STATUS WORDS [options]
    local words=$1; shift
    ntx run "$tmp/m.gguf" --raw x -n 1 --ctx 4096 "$@" >/dev/null 2>"$tmp/err" && fail "not refused: $*"
    [ "$(wc -l <"$tmp/err")" = 1 ] && grep -q -- "$words" "$tmp/err" || fail "$*: $(cat "$tmp/err")"
}
[ "$(stat -f -c %T "$tmp")" != tmpfs ] || skip "$tmp lies in memory"

for type in f16 q8_0; do
    answer "$tmp/whole" --kv-type $type
    [ -z "$(stat_of "$tmp/stats" kv_ram)" ] || fail "a file where nobody asked for one"
    ram=$([ $type = f16 ] && echo 10485760 || echo 6291456)
    answer "$tmp/part" --kv-type $type --kv-ram $ram --state "$tmp/kept"
    same "$tmp/whole" "$tmp/part" "$type with --kv-ram"
    [ "$(stat_of "$tmp/stats" kv_read_bytes)" -gt $((8 * ram)) ] ||
        fail "$type: read back: $(stat_of "$tmp/stats" kv_read_bytes)"
    [ "$(stat_of "$tmp/stats" kv_held_most)" -le $ram ] ||
        fail "$type: held $(stat_of "$tmp/stats" kv_held_most) of $ram"
done
answer "$tmp/whole"
rm -f "$tmp"/kept/*.prefix
answer "$tmp/part" --kv-ram 10M --state "$tmp/kept" --draft lookup
same "$tmp/whole" "$tmp/part" "with drafts"
answer "$tmp/part" --kv-ram 10M --state "$tmp/kept" # goes on from the file that the run before wrote
[ "$(stat_of "$tmp/stats" cached_tokens)" -gt 1000 ] || fail "cached tokens: $(stat_of "$tmp/stats" cached_tokens)"
same "$tmp/whole" "$tmp/part" "from a file of state"
[ -z "$(find "$tmp/kept" -type f ! -name '*.prefix')" ] || fail "left behind: $(ls -la "$tmp/kept")"
answer "$tmp/part" --kv-ram 1G --state "$tmp/kept" # more than it takes: there is no file
[ -z "$(stat_of "$tmp/stats" kv_ram)" ] || fail "a file where all fits into memory"
began=${EPOCHREALTIME/./}
answer "$tmp/part" --kv-ram 10M --state "$tmp/kept" --draft off --link nvme=400M # the emulated drive is theirs, too
took=$((${EPOCHREALTIME/./} - began)) least=$(($(stat_of "$tmp/stats" kv_read_bytes) / 400 - 200000))
[ $took -ge $least ] && [ $least -gt 500000 ] ||
    fail "read $(stat_of "$tmp/stats" kv_read_bytes) bytes from a drive of 400 MB/s in $took us"
same "$tmp/whole" "$tmp/part" "from an emulated drive"

refused 'in which directory with --state DIR' --kv-ram 10M
refused 'too little for this context: .* take 8\.' --kv-ram 1M --state "$tmp/kept"
refused 'No such file' --kv-ram 10M --state "$tmp/none/there"
[ "$(stat -f -c %T /dev/shm)" != tmpfs ] || { mkdir "/dev/shm/ntx-test-$$" &&
    cleanup+=("rm -rf /dev/shm/ntx-test-$$"); refused 'lies in memory itself' --kv-ram 10M \
    --state "/dev/shm/ntx-test-$$"; }
# All passes of a prompt but the last read nothing of the last layer: three quarters with four layers, where all would
# be 490 MB.
model "$tmp/m.gguf" --layers 4 --embd 128 --heads 2 --kv 2 --head-dim 64 --ff 128 --type Q8_0 --ctx 8192 --seed 5
long=$(seq 1 1650)
answer "$tmp/whole" --ctx 8192 --rows 64 -n 8
answer "$tmp/part" --ctx 8192 --rows 64 -n 8 --draft off --kv-ram 10M --state "$tmp/fresh"
same "$tmp/whole" "$tmp/part" "a prompt without the last layer"
reads=$(stat_of "$tmp/stats" kv_read_bytes)
[ $reads -gt 350000000 ] && [ $reads -lt 430000000 ] || fail "a prompt's passes read $reads bytes"

# compressed K of several positions, beside windows that stay in memory
model "$tmp/m.gguf" --arch deepseek4 --layers 8 --embd 128 --heads 2 --kv 1 --ff 128 --experts 4 --experts-used 2 \
    --expert-ff 64 --shared-ff 64 --hashed 1 --head-dim 128 --rotated 32 --q-lora 128 \
    --window 64 --index-most 16 --index-head 64 --index-heads 2 --type Q8_0 --ctx 4096 --seed 3
long=$(words 4400)
answer "$tmp/whole"
answer "$tmp/part" --kv-ram 1020K --state "$tmp/kept"
same "$tmp/whole" "$tmp/part" "deepseek4 with --kv-ram"
[ "$(stat_of "$tmp/stats" kv_read_bytes)" -gt 1000000 ] ||
    fail "deepseek4: read back: $(stat_of "$tmp/stats" kv_read_bytes)"
[ "$(stat_of "$tmp/stats" kv_held_most)" -le 1044480 ] || fail "deepseek4: held $(stat_of "$tmp/stats" kv_held_most)"

# Sparse attention reads the index keys of all positions and the K of a few: layers with an indexer, and (every third)
# layers that reuse the choice of an earlier one.
# reads MODEL RAM LEAST MOST BYTES: bytes that 24 tokens after a kept prompt read, in percent of as many passes over all
# positions, each of BYTES
reads() {
    local all
    rm -f "$tmp"/kept/*.prefix
    answer "$tmp/whole"
    answer "$tmp/part" -n 1 --kv-ram $2 --state "$tmp/kept"
    answer "$tmp/part" --kv-ram $2 --state "$tmp/kept" --draft off
    same "$tmp/whole" "$tmp/part" "$1 with --kv-ram"
    [ "$(stat_of "$tmp/stats" kv_held_most)" -le $2 ] || fail "$1: held $(stat_of "$tmp/stats" kv_held_most) of $2"
    all=$(($5 * $(stat_of "$tmp/stats" cached_tokens) * 24))
    local share=$(($(stat_of "$tmp/stats" kv_read_bytes) * 100 / all))
    [ $share -ge $3 ] && [ $share -le $4 ] || fail "$1: read $share % of all"
}
long=$(words 2400)
few="--layers 12 --embd 128 --heads 2 --ff 128 --experts 4 --experts-used 2 --expert-ff 64 --shared-ff 64 \
    --head-dim 64 --rotated 32 --kv-lora 96 --q-lora 64 --value-dim 32 --index-most 8 --index-head 64 --index-heads 2 \
    --type Q8_0 --ctx 4096 --seed 3"
model "$tmp/m.gguf" --arch deepseek32 $few
# Keys are a third of what a position has; every third layer of glm-dsa reads them. A saved prefix reads each run of
# keys once a layer: once a block, it was 52 and 22 %.
reads deepseek32 5939200 25 45 $((12 * 384))
model "$tmp/m.gguf" --arch glm-dsa --index-every 3 $few
reads glm-dsa 5939200 10 20 $((12 * 384))
# where index keys are beside K and V of several heads: all index keys, which are a fifth, and at most five blocks of a
# hundred; of the kept prompt's end all, once
model "$tmp/m.gguf" --arch qwen4exp --layers 24 --attention-every 2 --embd 128 --heads 4 --kv 2 --head-dim 64 \
    --rotated 32 --ff 64 --experts 4 --experts-used 2 --expert-ff 64 --shared-ff 64 \
    --delta-head 32 --index-most 4 --index-pool 4 --index-head 64 --index-heads 2 --low-rank 32 --type Q8_0 --ctx 4096 \
    --seed 3
long=$(words 4400)
reads qwen4exp 9338880 10 35 $((12 * 640))
finish "K and V beyond memory"
