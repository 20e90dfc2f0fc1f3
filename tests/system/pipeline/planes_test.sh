#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A model as high and low bits (ntx pack --planes) writes the text of the whole model, byte for byte: resident and
# streamed, greedy and sampled, with any number of threads, with experts, and with drafts by its high bits.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
models=$(cd "$(dirname "$0")/../../../models" && pwd)
prompt="Once upon a time there was a little girl who"
run=(--raw -n 40 --ignore-eos --quiet --ctx 256)

# refused WHAT TEXT COMMAND...: the command fails with this text
refused() {
    local what=$1 text=$2; shift 2
    "$NTX_BIN/ntx" "$@" >"$tmp/out" 2>"$tmp/err" && fail "$what: not refused"
    grep -q "$text" "$tmp/err" || fail "$what: $(cat "$tmp/err")"
}
# split NAME TYPE BITS: makes NAME.gguf of demo in this type, and its two parts in NAME.p.gguf
split() {
    ntx quantize "$models/demo.gguf" "$tmp/$1.gguf" "$2" --pure --quiet || fail "quantize $2"
    ntx pack "$tmp/$1.gguf" "$tmp/$1.p.gguf" --planes --low-bits "$3" >"$tmp/out" || fail "pack $2"
    grep -q "byte by byte" "$tmp/out" || fail "$1: $(cat "$tmp/out")"
    ntx pack "$tmp/$1.p.gguf" "$tmp/back.gguf" --join --quiet || fail "join $2"
    same "$tmp/$1.gguf" "$tmp/back.gguf" "$1 joined"
}
# both NAME HOW...: compares the whole model's text with that of its two parts
both() {
    local name=$1; shift
    ntx run "$tmp/$name.gguf" "$prompt" "${run[@]}" --draft off "$@" >"$tmp/whole" || fail "$name $*: whole"
    ntx run "$tmp/$name.p.gguf" "$prompt" "${run[@]}" --draft off --stats "$tmp/s" "$@" >"$tmp/parts" ||
        fail "$name $*"
    same "$tmp/whole" "$tmp/parts" "$name $*"
}
# drafts NAME HOW...: the same, and its high bits draft
drafts() {
    local name=$1; shift
    ntx run "$tmp/$name.gguf" "$prompt" "${run[@]}" --draft off "$@" >"$tmp/whole" || fail "$name $*: whole"
    local try
    for try in 1 2 3 4 5 6 7 8; do
        ntx run "$tmp/$name.p.gguf" "$prompt" "${run[@]}" --draft self --draft-nodes 7 --stats "$tmp/s" "$@" \
            >"$tmp/parts" || fail "$name $*: drafts"
        same "$tmp/whole" "$tmp/parts" "$name $*: drafts"
        sed -n '/"draft_hits"/,/}/p' "$tmp/s" >"$tmp/hits"
        echo "$name $*: $(stat_of "$tmp/s" accepted_per_pass) tokens a pass"
        [ "$NTX_TEST_SLOW" != 1 ] || [ "$(stat_of "$tmp/hits" file)" -gt 5 ] && return
    done
    fail "$name $*: nothing held"
}
split q4 Q4_K 2
split q4b Q4_K 1
split q6 Q6_K 2
split q8 Q8_0 2
split q50 Q5_0 2
split q5 Q5_K 2
both q4 --temp 0
both q4 --temp 0.8 --seed 3 --threads 1
both q4b --temp 0.8 --seed 4 --threads 3
both q6 --temp 0
both q8 --temp 0.8 --seed 5
both q50 --temp 0
both q5 --temp 0
both q8 --temp 0.8 --seed 6 --ram 10M --rows 8
[ "$(stat_of "$tmp/s" bytes_read)" -gt 1000000 ] || fail "nothing was streamed"
both q8 --temp 0 --kernel generic
# The drive is slow, so that the high bits have time to draft while it reads.
slow=(--ram 17M --rows 32 --link nvme=5M)
drafts q8 --temp 0 "${slow[@]}"
drafts q8 --temp 0.8 --seed 4 "${slow[@]}"
# Experts: their high bits stay in memory. A matrix of 256 x 256 in Q4_K is read as 36864 bytes, its low bits as 16384,
# from and to whole blocks of the drive.
model "$tmp/e.gguf" --arch qwen3moe --layers 6 --embd 256 --ff 256 --heads 8 --kv 2 --head-dim 64 --experts 16 \
    --experts-used 2 --expert-ff 256 --type Q4_K --seed 7
ntx pack "$tmp/e.gguf" "$tmp/e.p.gguf" --planes --quiet || fail "pack experts"
both e --temp 0
both e --temp 0.8 --seed 2 --ram 11M --rows 4
each() { awk -F'[ ,:]+' '/"bytes_read_per_token"/ { b = $3 } /"reads_per_token"/ { r = $3 }
    END { printf "%.0f", r ? b / r : 0 }' "$tmp/s"; }
parts=$(each)
ntx run "$tmp/e.gguf" "$prompt" "${run[@]}" --draft off --stats "$tmp/s" --temp 0.8 --seed 2 --ram 11M --rows 4 \
    >"$tmp/whole" || fail "whole experts"
whole=$(each)
[ "$whole" -ge 36864 ] && [ "$whole" -le 45056 ] || fail "a read of an expert has $whole bytes"
[ "$parts" -ge 16384 ] && [ "$parts" -le 24576 ] || fail "a read of an expert's low bits has $parts bytes"

# `ntx plan` says what the split model would give, and predicts as much for the split model itself.
plan() { ntx plan "$@" --ctx 256 --machine cores=8,ram=1G,drive=20M; }
rate() { plan "$@" --json | awk -F'[ ,]+' '/"predicted_tok_s"/ { print $3 }'; }
plan "$tmp/q8.gguf" --ram 12M >"$tmp/plan" || fail "plan"
gain=$(sed -n 's/.*With pack --planes, .* about \([0-9.]*\) times as fast: ntx pack .*q8.gguf split.*/\1/p' "$tmp/plan")
whole=$(rate "$tmp/q8.gguf" --ram 12M) parts=$(rate "$tmp/q8.p.gguf" --ram 12M --draft off)
awk -v a="$gain" -v b="$whole" -v c="$parts" 'BEGIN { exit !(a > 1.15 && a > c / b - 0.06 && a < c / b + 0.06) }' ||
    fail "the plan's gain of $gain, from $whole to $parts: $(cat "$tmp/plan")"
plan "$tmp/q8.gguf" --ram 32M | grep -q planes && fail "planes of a model that is in memory"
plan "$tmp/q8.gguf" --ram 8M | grep -q planes && fail "planes whose high bits do not fit"

# Wrong and missing files, and tools that want the whole model
refused "a tool" "split in high and low bits" quantize "$tmp/q4.p.gguf" "$tmp/x.gguf" Q4_0
refused "packed twice" "split in high and low bits" pack "$tmp/q4.p.gguf" "$tmp/x.gguf" --planes
refused "nothing to join" "no low bits" pack "$tmp/q4.gguf" "$tmp/x.gguf" --join
ntx quantize "$models/demo.gguf" "$tmp/q40.gguf" Q4_0 --pure --quiet || fail "quantize"
refused "no such types" "have high and low bits" pack "$tmp/q40.gguf" "$tmp/x.gguf" --planes
cp "$tmp/q4b.p.draft.gguf" "$tmp/q4.p.draft.gguf"
refused "another pair" "not of one model with it" run "$tmp/q4.p.gguf" "$prompt" -n 1
rm "$tmp/q4.p.draft.gguf"
refused "no high bits" "must be beside it" run "$tmp/q4.p.gguf" "$prompt" -n 1
truncate -s -100000 "$tmp/q6.p.draft.gguf"
refused "cut short" "q6.p.draft.gguf" run "$tmp/q6.p.gguf" "$prompt" -n 1
