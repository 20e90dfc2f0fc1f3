#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 of computed: the client gets an error at once, nothing is left behind, the next start works.
# kill -9 of the client: its daemons end too. Ctrl-C: the run ends by the signal, cleanly.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 3
run=("$NTX_BIN/ntx" run "$tmp/m.gguf" "Once upon a time" --raw --ignore-eos --ram 12M --ctx 256 --quiet -n 200 \
    --link nvme=60M)
left() { ls -d "$tmp"/ntx-run-* 2>/dev/null; }

"${run[@]}" >"$tmp/out" 2>"$tmp/err" &
pid=$!
wait_for 10 test -s "$tmp/out" || fail "no token within 10 s: $(cat "$tmp/err")"
iod=$(child $pid ntx-iod)
predictor=$(child $pid ntx-predictor)
t0=$(date +%s%N)
kill -9 "$(child $pid ntx-computed)"
wait_for 5 test -s "$tmp/err" || fail "no error within 5 s"
ms=$((($(date +%s%N) - t0) / 1000000))
wait $pid
code=$?
[ $code = 111 ] || fail "exit $code after computed died, not 111"
[ "$(wc -l <"$tmp/err")" = 1 ] && grep -q 'ntx-computed ended (killed by signal 9,' "$tmp/err" ||
    fail "error text: $(cat "$tmp/err")"
[ $ms -lt $((5000 * ${NTX_TEST_SLOW:-1} * $(patience))) ] || fail "the error took $ms ms"
wait_for 5 gone "$iod" && wait_for 5 gone "$predictor" || fail "a worker outlived computed"
[ -z "$(left)" ] || fail "left behind: $(left)"

"${run[@]}" >"$tmp/out" 2>"$tmp/err" &
pid=$!
wait_for 10 test -s "$tmp/out" || fail "no token in the next start"
kids="$(pgrep -P $pid)"
kill -9 $pid
wait $pid 2>/dev/null
for k in $kids; do wait_for 10 gone "$k" || fail "daemon $k outlived its killed supervisor"; done

set -m # so that background jobs do not ignore SIGINT
"${run[@]}" >"$tmp/out" 2>"$tmp/err" &
pid=$!
set +m
wait_for 10 test -s "$tmp/out" || fail "no token before Ctrl-C"
kids="$(pgrep -P $pid)"
rm -rf "$tmp"/ntx-run-old
kill -INT $pid
wait $pid
code=$?
[ $code = 130 ] || fail "exit $code after Ctrl-C, not 130 (death by SIGINT)"
for k in $kids; do gone "$k" || fail "daemon $k outlived Ctrl-C"; done
echo "error after $ms ms; nothing left behind"
