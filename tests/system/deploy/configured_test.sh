#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# ntx-computed --config: it serves the model and uses the memory of the configuration; an error in it ends ntx-computed
# at once, without restarts.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 3
dir=$tmp/rt
mkdir -m 700 "$dir"
daemon() { "$NTX_BIN/$1" --runtime "$dir" "${@:2}" 2>>"$tmp/log" & cleanup+=("kill -9 $! 2>/dev/null"); }
export NTX_RUNTIME=$dir

printf '[clients]\nmax = lots\n' >"$tmp/bad.conf"
"$NTX_BIN/ntx-computed" --runtime "$dir" --config "$tmp/bad.conf" 2>"$tmp/err"
[ $? = 100 ] || fail "a bad configuration ends with $?"
grep -q 'bad.conf:2: max: .lots. is not a whole number' "$tmp/err" || fail "a bad configuration says: $(cat "$tmp/err")"
"$NTX_BIN/ntx-computed" --runtime "$dir" --config "$tmp/none.conf" 2>"$tmp/err"
[ $? = 100 ] || fail "a missing configuration ends with $?"

printf \
    '[model]\npath = %s\nram = 12M\nctx = 64\nthreads = 1\nkernel = generic\n[links]\nnvme = 20M\n%b' "$tmp/m.gguf" \
    '[clients]\nmax = 2\nqueue_wait = no\nstop_grace = 1\n' >"$tmp/ntx.conf"
daemon ntx-computed --service --config "$tmp/ntx.conf"
computed=$!
daemon ntx-iod
daemon ntx-predictor
wait_for 20 eval \
    'ntx generate "Once" --raw --temp 0 --ignore-eos -n 4 --quiet --stats "$tmp/stats" >"$tmp/text" 2>"$tmp/err"' ||
    fail "no text: $(cat "$tmp/err" "$tmp/log")"
[ "$(stat_of "$tmp/stats" kernel)" = generic ] || fail "kernel: $(cat "$tmp/stats")"
[ "$(stat_of "$tmp/stats" threads)" = 1 ] || fail "threads: $(cat "$tmp/stats")"
[ "$(stat_of "$tmp/stats" generated_tokens)" = 4 ] || fail "tokens: $(cat "$tmp/stats")"

# At this rate the context lasts for 20 seconds and more; the grace time is one.
ntx generate "Once" --raw --ignore-eos --quiet >/dev/null 2>"$tmp/cut" &
client=$!
wait_for 10 eval 'ntx status --json | grep -q "\"sessions\": *1"' || fail "session not seen"
# Memory is reserved for one session, and the queue is empty.
ntx generate "Once" --raw --ignore-eos --quiet >"$tmp/text" 2>"$tmp/err" && fail "a second session had room"
grep -q 'busy: [0-9]* of [0-9]* KV blocks are taken' "$tmp/err" ||
    fail "a request without room is told: $(cat "$tmp/err")"
begin=$(date +%s%N)
kill -TERM $computed
wait_for 10 gone $computed || fail "ntx-computed outlives its grace time"
took=$((($(date +%s%N) - begin) / 1000000))
wait $computed || fail "ntx-computed ended with $?"
[ $took -ge 900 ] && [ $took -le $((1000 + 9000 * ${NTX_TEST_SLOW:-1} * $(patience))) ] ||
    fail "the grace time of one second took $took ms"
wait $client && fail "an answer that was cut ended well"
[ "$(cat "$tmp/cut")" = "ntx: the answer is cut short: ntx-computed is shutting down" ] ||
    fail "what the client is told: $(cat "$tmp/cut")"
