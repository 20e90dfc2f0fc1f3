#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Text with drafts is the text without, byte for byte: greedy and sampled, with penalties, resident and streamed, with
# both KV types. Text that repeats itself takes fewer passes.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
demo=$(dirname "$0")/../../../models/demo.gguf
story="Tom had a red ball. Tom had a red ball. Tom had a red ball. Tom had a"
# both WHAT WHERE HOW...: the same command without and with drafts
both() {
    local what=$1 model=$2; shift 2
    ntx run "$model" "$story" --raw -n 90 --ignore-eos --quiet --draft off --stats "$tmp/s0" "$@" >"$tmp/plain" ||
        fail "$what: plain"
    ntx run "$model" "$story" --raw -n 90 --ignore-eos --quiet --draft lookup --draft-nodes 31 \
        --stats "$tmp/s1" "$@" >"$tmp/drafts" || fail "$what: with drafts"
    same "$tmp/plain" "$tmp/drafts" "$what"
    [ "$(stat_of "$tmp/s0" accepted_per_pass)" = 1.0 ] ||
        fail "$what: without drafts $(stat_of "$tmp/s0" accepted_per_pass) tokens per pass"
    echo "$what: $(stat_of "$tmp/s1" accepted_per_pass) tokens per pass, $(stat_of "$tmp/s1" \
        draft_nodes_per_pass) drafted"
}
more_than() {
    awk -v x="$(stat_of "$tmp/s1" "$1")" -v y="$2" 'BEGIN {exit !(x > y)}' ||
        fail "$1 is $(stat_of "$tmp/s1" "$1"), not more than $2"
}
both greedy "$demo" --temp 0
more_than accepted_per_pass 1.2
more_than draft_nodes_per_pass 5
both sampled "$demo" --temp 0.8 --seed 4
both "sampled from all" "$demo" --temp 0.6 --seed 5 --top-k 0 --top-p 1 --min-p 0
both "with a penalty" "$demo" --temp 0.7 --seed 6 --repeat-penalty 1.2
both streamed "$demo" --temp 0 --ram 9M --ctx 256
more_than bytes_read 1000000
both q8_0 "$demo" --temp 0.5 --seed 7 --kv-type q8_0 --threads 1
both "few rows" "$demo" --temp 0 --rows 5
model "$tmp/m.gguf" --arch gpt-oss --layers 3 --embd 256 --ff 256 --heads 8 --kv 2 --head-dim 64 --type Q8_0 \
    --window 20 --seed 7
both "windows and experts" "$tmp/m.gguf" --temp 0.3 --seed 2
# Recurrent states do not branch: drafts are a chain, and after a rejection the accepted part is computed again.
model "$tmp/d.gguf" --arch qwen35 --layers 4 --embd 128 --ff 256 --heads 4 --kv 2 --delta-head 32 --type Q8_0 --seed 9
both "delta nets" "$tmp/d.gguf" --temp 0
model "$tmp/r.gguf" --arch qwen35 --layers 2 --attention-every 2 --embd 64 --ff 64 --heads 2 --kv 2 --delta-head 16 \
    --delta-heads 2 --seed 3
both "delta nets that repeat themselves" "$tmp/r.gguf" --temp 0
more_than accepted_per_pass 1.5
more_than draft_nodes_per_pass 3
both "delta nets, sampled" "$tmp/d.gguf" --temp 0.4 --seed 3
both "delta nets, few rows" "$tmp/d.gguf" --temp 0.2 --seed 5 --rows 3
model "$tmp/w.gguf" --arch qwen35 --layers 8 --embd 256 --ff 1024 --heads 4 --kv 2 --delta-head 32 --type Q8_0 --seed 9
both "delta nets, streamed" "$tmp/w.gguf" --temp 0.3 --seed 6 --ram 6M --ctx 256
more_than bytes_read 100000000
model "$tmp/n.gguf" --arch qwen3next --layers 4 --embd 128 --heads 4 --kv 2 --experts 6 --expert-ff 64 --shared-ff 64 \
    --delta-head 32 --type Q4_0 --seed 4
both "delta nets and experts" "$tmp/n.gguf" --temp 0.3 --seed 2
ntx run "$demo" "$story" --raw -n 60 --ignore-eos --temp 0 --quiet --draft lookup --stats "$tmp/s1" >"$tmp/t1" ||
    fail "as many as pay"
ntx run "$demo" "$story" --raw -n 60 --ignore-eos --temp 0 --quiet --draft off >"$tmp/t0" || fail "plain"
same "$tmp/t0" "$tmp/t1" "as many as pay"
