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
    case $2 in INT) [ $code = 130 ] ;; TERM) [ $code = 143 ] ;; esac || fail "$1: exit $code: $(cat "$tmp/err")"
    ! grep -q '"token"' "$tmp/out" || fail "$1: a pass of seconds was over: $(cat "$tmp/out")"
    [ -z "$(find "$tmp" -name 'ntx-run-*')" ] || fail "$1: left behind: $(ls "$tmp")"
    echo "$1, SIG$2: $took ms"
}
set -m # background jobs take SIGINT
interrupted prompt INT 2M
interrupted prompt TERM 2M
interrupted loading INT 100000

# Text that is held back, since it might become a stop string, is shown at the end, on a line of its own without a token.
"$NTX_BIN/ntx" run "$tmp/m.gguf" hello --raw --ram 10M -n 1 --ignore-eos --temp 0 --quiet | tr -d '\n' >"$tmp/first" || fail "one token"
[ -s "$tmp/first" ] || fail "the first token has no text"
"$NTX_BIN/ntx" run "$tmp/m.gguf" hello --raw --ram 10M -n 40 --ignore-eos --temp 0 --link nvme=9M --json --stop "$(tail -c 1 "$tmp/first")"$'\x01' >"$tmp/out" 2>"$tmp/err" &
pid=$!
wait_for 30 grep -q '"token"' "$tmp/out" || fail "no token: $(cat "$tmp/err")"
kill -INT $pid
wait $pid
python3 - "$tmp/out" "$tmp/first" <<'PY' || fail "held back: $(cat "$tmp/out")"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
first = open(sys.argv[2], "rb").read().decode(errors="replace")
assert [sorted(l) for l in lines] == [["text", "token"], ["text"], ["stats"]], lines
assert lines[0]["text"] + lines[1]["text"] == first and lines[1]["text"], (lines, first)
assert lines[0]["token"] >= 0 and lines[2]["stats"]["finish"] == "cancel", lines
PY
echo "held back and shown: $(tail -2 "$tmp/out" | head -1)"
