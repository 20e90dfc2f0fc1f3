#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A model in high and low bits (ntx pack --planes) beside the whole one, whose text it writes: with an adapter, with
# kept state, while ntx-iod and ntx-predictor are killed, and in a service whose ntx-computed was killed.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
shape=(--layers 6 --embd 256 --ff 1024 --heads 8 --kv 2 --type Q8_0)
model "$tmp/m.gguf" "${shape[@]}" --seed 3
model "$tmp/tuned.gguf" "${shape[@]}" --seed 4
ntx pack "$tmp/m.gguf" "$tmp/p.gguf" --planes --quiet || fail "pack"
ntx pack "$tmp/tuned.gguf" "$tmp/lora.gguf" --delta --base "$tmp/m.gguf" --rank 4 --force --quiet ||
    fail "pack an adapter"
prompt="Once upon a time there was a little girl who lived in a small house"
run=(--raw -n 16 --ignore-eos --quiet --ctx 128 --temp 0)
little=(--ram 7M --rows 8)

# An adapter is added to joined weights: resident, streamed, and where it drafts.
ntx run "$tmp/m.gguf" "$prompt" "${run[@]}" --draft off >"$tmp/plain" || fail "plain"
ntx run "$tmp/m.gguf" "$prompt" "${run[@]}" --lora "$tmp/lora.gguf" --draft off >"$tmp/want" || fail "adapter"
cmp -s "$tmp/plain" "$tmp/want" && fail "the adapter changes nothing"
for how in "--draft off" "--draft off ${little[*]}" "--draft self --draft-nodes 3"; do
    # shellcheck disable=SC2086
    ntx run "$tmp/p.gguf" "$prompt" "${run[@]}" --lora "$tmp/lora.gguf" $how >"$tmp/got" 2>"$tmp/err" ||
        fail "adapter $how: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "adapter $how"
done

# Faults of ntx-iod while low bits are read
for fault in "iod:kill@state=FILLING,nth=3,start=1" "iod:kill@state=READY,nth=9,start=1" "iod:kill@read=7,start=1" \
    "iod:short@every=7" "iod:reorder=8"; do
    ntx run "$tmp/p.gguf" "$prompt" "${run[@]}" "${little[@]}" --draft off --stats "$tmp/s" --fault "$fault" \
        >"$tmp/got" 2>"$tmp/err" || fail "$fault: $(cat "$tmp/err")"
    same "$tmp/plain" "$tmp/got" "$fault"
done
[ "$(stat_of "$tmp/s" bytes_read)" -gt 100000 ] || fail "nothing was streamed"

# Kept state: the second process goes on where the first one was.
long=$(words 100)
keep=(-n 16 --ignore-eos --quiet --ctx 512 --temp 0 --raw --draft off --stats "$tmp/s")
ntx run "$tmp/m.gguf" "$long" "${keep[@]}" >"$tmp/want" || fail "a long prompt"
for turn in 1 2; do
    ntx run "$tmp/p.gguf" "$long" "${keep[@]}" --state "$tmp/kept" >"$tmp/got" 2>"$tmp/err" ||
        fail "state, $turn: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "state, $turn"
done
[ "$(stat_of "$tmp/s" cached_tokens)" -gt 60 ] || fail "cached: $(stat_of "$tmp/s" cached_tokens)"

# ntx-computed is killed in an answer: the run says so, and the next one writes the same text.
"$NTX_BIN/ntx" run "$tmp/p.gguf" "$prompt" "${run[@]}" "${little[@]}" -n 100 --link nvme=2M >"$tmp/out" 2>"$tmp/err" &
pid=$!
wait_for 20 test -s "$tmp/out" || fail "no token: $(cat "$tmp/err")"
kill -9 "$(child $pid ntx-computed)"
wait $pid && fail "no error after ntx-computed was killed"
grep -q "ntx-computed ended" "$tmp/err" || fail "killed: $(cat "$tmp/err")"
ntx run "$tmp/p.gguf" "$prompt" "${run[@]}" "${little[@]}" >"$tmp/got" || fail "after a kill"
same "$tmp/plain" "$tmp/got" "after ntx-computed was killed"
