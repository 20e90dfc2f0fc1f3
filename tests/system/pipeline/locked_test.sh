#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The workers of a pipeline without service have sandboxed all of their threads, and have mapped only the parts of the
# region that they need. tests/unit/sandbox tries from within what the sandbox prevents.
. "$(dirname "$0")/../../lib/test.sh"
sanitized && skip "a build with sanitizers is not locked in all the way"
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 3
run=("$NTX_BIN/ntx" run "$tmp/m.gguf" "Once upon a time there was" --raw --ignore-eos --ram 12M --ctx 64 --quiet -n 8)
"${run[@]}" >"$tmp/want" || fail "undisturbed run"
"${run[@]}" --link nvme=60M >"$tmp/got" 2>"$tmp/err" &
pid=$!
parts() {
    readlink "/proc/$1/fd"/* 2>/dev/null | sed -n 's/.*memfd:\(ntx-[a-z]*\).*/\1/p' | grep -vx ntx-log | sort -u |
        tr '\n' ' '
}
has_parts() { local p; p=$(child $pid "$1") && [ "$(parts "$p")" = "$2" ]; }
locked() { # PID: every thread
    local s
    for s in /proc/"$1"/task/*/status; do
        grep -q '^Seccomp:[[:space:]]2$' "$s" && grep -q '^NoNewPrivs:[[:space:]]1$' "$s" || return 1
    done
}
check() { # DAEMON PARTS
    wait_for 10 has_parts "$1" "$2" || fail "$1 has $(parts "$(child $pid "$1")"), expected $2"
    locked "$(child $pid "$1")" || fail "$1 is not locked in"
}
check ntx-iod "ntx-bytes ntx-control ntx-plan ntx-ring "
check ntx-predictor "ntx-board "
first=$(child $pid ntx-iod)
kill -9 "$first" "$(child $pid ntx-predictor)"
another() { [ "$(child $pid ntx-iod)" != "$first" ]; }
wait_for 10 another || fail "ntx-iod was not started again"
check ntx-iod "ntx-bytes ntx-control ntx-plan ntx-ring " # and so are those that come after them
check ntx-predictor "ntx-board "
wait $pid || fail "exit $?: $(cat "$tmp/err")"
same "$tmp/want" "$tmp/got" "text"
echo "both workers are locked in, and their successors"
