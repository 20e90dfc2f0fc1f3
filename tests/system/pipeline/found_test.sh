#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# status, trace, ntx-top and ntx-metrics find a private run by themselves. They list several, and if none runs, say
# where they looked. Commands that would change other users' daemons do not use a private run.
. "$(dirname "$0")/../../lib/test.sh"
[ ! -e /run/ntx/ntx.sock ] || skip "a service runs here: it would be found first"
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0
top="$NTX_BIN/ntx-top --interval 0.1"

# refused PATTERN COMMAND...: exit 111 and one line with the pattern
refused() {
    local pattern=$1 code; shift
    timeout $((60 * $(patience))) "$@" >"$tmp/out" 2>"$tmp/err" </dev/null; code=$?
    [ $code = 111 ] && [ "$(wc -l <"$tmp/err")" = 1 ] && grep -Eq "$pattern" "$tmp/err" ||
        fail "$*: exit $code: $(cat "$tmp/err") lacks $pattern"
}
none='no daemons run: neither the service \(/run/ntx\) nor `ntx up` \('"$tmp/ntx-$(id -u)"'\)'
for c in "$NTX_BIN/ntx status" "$NTX_BIN/ntx trace -o $tmp/t.json" "$top --once" "$NTX_BIN/ntx-metrics"; \
    do refused "$none, nor a private .ntx run. of yours; start them" $c; done
refused "$none; start them with .ntx up MODEL. or .systemctl start ntx.target.\$" "$NTX_BIN/ntx" stop

run() { # a run in the background that goes on for long; $pid
    "$NTX_BIN/ntx" run "$tmp/m.gguf" hello --raw --ram 10M -n 400 --ctx 512 --ignore-eos --temp 0 \
        --quiet --link nvme=30M >"$tmp/out.$1" 2>"$tmp/err.$1" &
    pid=$!
    cleanup+=("kill $pid 2>/dev/null; wait $pid 2>/dev/null")
    wait_for 20 test -s "$tmp/out.$1" || fail "no token: $(cat "$tmp/err.$1")"
}
run 1
first=$pid
dir=$(dirname "$tmp"/ntx-run-*/counters)
timeout $((60 * $(patience))) "$NTX_BIN/ntx" status >"$tmp/status" 2>"$tmp/err" || fail "status: $(cat "$tmp/err")"
grep -qx "private run  *process $first, in $dir" "$tmp/status" && grep -qx 'model  *random' "$tmp/status" &&
    grep -qx 'sessions  *1' "$tmp/status" || fail "status: $(cat "$tmp/status")"
ntx status --json >"$tmp/json" &&
    python3 \
    -c 'import json, sys; s = json.load(open(sys.argv[1])); assert s["model"] == "random" and s["sessions"] == 1, s' \
    "$tmp/json" || fail "status --json: $(cat "$tmp/json")"
$top --once >"$tmp/top" 2>&1 && grep -q '^ *ntx-top .*random' "$tmp/top" && grep -q 'writes' "$tmp/top" ||
    fail "ntx-top: $(cat "$tmp/top")"
ntx trace -o "$tmp/t.json" --seconds 0.5 2>"$tmp/err" && grep -q '"read' "$tmp/t.json" ||
    fail "trace: $(cat "$tmp/err")"
"$NTX_BIN/ntx-metrics" | grep -q '^ntx_model_info{model="random",' || fail "ntx-metrics"
for c in stop unload "generate x" "load $tmp/m.gguf"; do refused "$none; start them" "$NTX_BIN/ntx" $c; done
gone $first && fail "the private run ended"

run 2
one="$tmp/ntx-run-.* \\(pid ($first|$pid), random\\)"
several="2 private runs of yours go on: $one, $one; set NTX_RUNTIME"
for c in "$NTX_BIN/ntx status" "$NTX_BIN/ntx trace -o $tmp/t.json" "$top --once"; do refused "$several" $c; done
[ "$(NTX_RUNTIME=$dir ntx status | grep -c '^model  *random')" = 1 ] || fail "one of several, by its directory"
kill $first
wait $first 2>/dev/null
ntx status | grep -qx "private run  *process $pid, in .*" || fail "the one that is left"

# Daemons of `ntx up` come first.
"$NTX_BIN/ntx" up "$tmp/m.gguf" --ram 64M --ctx 64 --quiet 2>"$tmp/up.err" &
up=$!
cleanup+=("kill $up 2>/dev/null; wait $up 2>/dev/null")
wait_for 20 eval 'ntx status 2>/dev/null | grep -q "^state  *ready" && ! ntx status | grep -q "private run"' ||
    fail "those of ntx up: $(ntx status 2>&1)"
echo "found: one run, one of two, those of ntx up"
