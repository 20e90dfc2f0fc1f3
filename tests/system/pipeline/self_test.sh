#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --draft self: a copy of the model in fewer bits, MODEL.draft.gguf beside it, drafts. The text is the text without,
# byte for byte: in memory, streamed, at any temperature, with killed drafters. auto finds it, too.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
models=$(cd "$(dirname "$0")/../../../models" && pwd)
cp "$models/demo.gguf" "$tmp/a.gguf"
run=(run "$tmp/a.gguf" "Once upon a time there was a little girl who" --raw -n 60 --ignore-eos --quiet --ctx 256)

ntx quantize "$tmp/a.gguf" "$tmp/a.draft.gguf" Q4_0 --quiet || fail "quantize"

# both WHAT WAY HOW...: compares the text without drafts with that of --draft WAY
both() {
    local what=$1 way=$2; shift 2
    ntx "${run[@]}" --draft off "$@" >"$tmp/plain" || fail "$what: without"
    ntx "${run[@]}" --draft "$way" --stats "$tmp/s" "$@" >"$tmp/got" || fail "$what"
    same "$tmp/plain" "$tmp/got" "$what"
    sed -n '/"draft_hits"/,/}/p' "$tmp/s" >"$tmp/hits"
    echo "$what: $(stat_of "$tmp/s" accepted_per_pass) tokens a pass of $(stat_of "$tmp/s" draft_nodes_per_pass) drafts"
}
# held WHAT WAY HOW...: the same, and drafts held. How many come in time depends on the machine, so it may try again.
held() {
    local try
    for try in 1 2 3 4 5 6 7 8; do
        both "$@"
        [ "$NTX_TEST_SLOW" != 1 ] || [ "$(stat_of "$tmp/hits" file)" -gt 5 ] && return
    done
    fail "$1: nothing held"
}
streamed=(--ram 28M --rows 32 --link nvme=20M)
held "greedy, streamed" self --temp 0 --draft-nodes 7 "${streamed[@]}"
held "sampled, streamed" self --temp 0.8 --seed 4 "${streamed[@]}"
both "sampled" self --temp 0.8 --seed 3 --draft-nodes 7
both "with lookup" lookup,self --temp 1 --seed 5 --draft-nodes 7
both "found by auto" auto --temp 0 --draft-nodes 7 --ram 400M
grep -q '"file"' "$tmp/hits" || fail "auto does not find the copy"
mv "$tmp/a.draft.gguf" "$tmp/b.draft.gguf"
both "none for auto" auto --temp 0 --draft-nodes 7 --ram 400M
grep -q '"file"' "$tmp/hits" && fail "auto finds what is not there"
mv "$tmp/b.draft.gguf" "$tmp/a.draft.gguf"

# Killed at any time. Parts of a split model share one copy.
ntx "${run[@]}" --draft off --temp 0.8 --seed 6 --ram 28M --rows 32 >"$tmp/want" || fail "undisturbed"
for i in 1 2 3; do
    "$NTX_BIN/ntx" "${run[@]}" --draft self --draft-nodes 7 --temp 0.8 --seed 6 --ram 28M --rows 32 --link nvme=60M \
        >"$tmp/got" 2>"$tmp/err" &
    pid=$!
    read -rt "0.$((i * 2))" <> <(:) || :
    victim=$(child $pid ntx-predictor) && kill -9 "$victim" 2>/dev/null
    wait $pid || fail "round $i: exit $?: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "round $i"
done
ntx quantize "$tmp/a.gguf" "$tmp/c.gguf" Q8_0 --split 8M --quiet || fail "quantize in parts"
cp "$tmp/a.draft.gguf" "$tmp/c.draft.gguf"
first=$(echo "$tmp"/c-00001-of-*.gguf)
run[1]=$first
held "a split model" self --temp 0 --draft-nodes 7 "${streamed[@]}"

# A file of another model is refused.
cp "$models/demo-moe.gguf" "$tmp/m.gguf"
model "$tmp/m.draft.gguf" --layers 2 --embd 256 --ff 256 --heads 8 --kv 2 --type F16 --seed 1
"$NTX_BIN/ntx" run "$tmp/m.gguf" x --raw -n 1 --quiet --draft self >"$tmp/out" 2>"$tmp/err" && fail "another model's"
grep -q "the drafter: its vocabulary" "$tmp/err" || fail "another model's: $(cat "$tmp/err")"
