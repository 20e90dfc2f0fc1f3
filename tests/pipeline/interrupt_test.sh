#!/bin/bash
# Ctrl-C ends `ntx run` at once, also in the middle of a pass that would take seconds, and leaves nothing behind.
. "$(dirname "$0")/lib.sh"
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0
limit_ms=$((1000 * ${NTX_TEST_SLOW:-1}))

# interrupted NAME SIGNAL RATE: with reads at RATE
interrupted() {
    local pid begin took code
    "$NTX_BIN/ntx" run "$tmp/m.gguf" hello --raw --ram 10M -n 40 --ignore-eos --link nvme="$3" --json >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    if [ "$1" = loading ]; then
        wait_for 20 child $pid ntx-iod >/dev/null || fail "$1: the daemons did not come up"
    else
        wait_for 20 grep -q context "$tmp/err" || fail "$1: not loaded: $(cat "$tmp/err")"
    fi
    begin=$(date +%s%N)
    kill "-$2" $pid
    wait $pid; code=$?
    took=$((($(date +%s%N) - begin) / 1000000))
    [ $took -lt "$limit_ms" ] || fail "$1: ended after $took ms"
    case $2 in INT) [ $code = 130 ] ;; TERM) [ $code = 143 ] ;; esac || fail "$1: exit $code"
    ! grep -q '"token"' "$tmp/out" || fail "$1: a pass of seconds was over: $(cat "$tmp/out")"
    [ -z "$(find "$tmp" -name 'ntx-run-*')" ] || fail "$1: left behind: $(ls "$tmp")"
    echo "$1, SIG$2: $took ms"
}
set -m # background jobs take SIGINT
interrupted prompt INT 2M
interrupted prompt TERM 2M
interrupted loading INT 100000
