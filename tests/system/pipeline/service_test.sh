#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `ntx up` and its clients: several at once get the text that each gets alone, share passes, come and go.
. "$(dirname "$0")/../../lib/test.sh"
export NTX_RUNTIME=$tmp/rt
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 5
"$NTX_BIN/ntx" up "$tmp/m.gguf" --ram 16M --ctx 128 --sessions 4 2>"$tmp/up.log" &
up=$!
cleanup+=("kill -9 $up 2>/dev/null")
wait_for 20 eval "ntx status >/dev/null 2>&1" || fail "no daemon: $(cat "$tmp/up.log")"
wait_for 20 grep -q 'ready' "$tmp/up.log" || fail "not ready: $(cat "$tmp/up.log")"
ntx status --json | grep -q '"model"' || fail "status lacks the model"

# A second one in the same directory is refused before it starts anything, and the first goes on.
"$NTX_BIN/ntx" up "$tmp/m.gguf" >"$tmp/second" 2>&1 && fail "two services in one directory"
grep -q "another ntx-computed (pid $(child $up ntx-computed)) answers there" "$tmp/second" &&
    [ "$(wc -l <"$tmp/second")" = 1 ] || fail "a second service: $(cat "$tmp/second")"
# A closed standard output is an error; nothing is written to the socket in its place.
ntx generate "Once" --raw -n 2 2>"$tmp/closed" >&- && fail "generate without standard output"
grep -q 'standard output: ' "$tmp/closed" || fail "generate without standard output: $(cat "$tmp/closed")"
grep -q 'connection closed' "$tmp/up.log" && fail "what was to be printed went to ntx-computed: $(cat "$tmp/up.log")"

prompts=("Once upon a time" "The little dog" "In the park they saw" "A big tree")
gen() { ntx generate "${prompts[$1]}" --raw --ignore-eos -n 24 --quiet --stats "$tmp/stats.$2.$1" >"$tmp/$2.$1"; }
for i in 0 1 2 3; do gen $i alone || fail "generate $i"; done
# Bytes are counted from the time when all four clients are connected: until then ntx-iod is stopped, so that no pass
# ends. (They send requests as soon as they are connected; and the drive is so slow that a short delay is much less than
# a pass.)
ntx unload && ntx load "$tmp/m.gguf" --ram 16M --ctx 128 --sessions 4 --link nvme=100M --quiet ||
    fail "load with a slow drive"
gen 0 slow || fail "generate, slow"
same "$tmp/alone.0" "$tmp/slow.0" "a slow drive"
one=$(stat_of "$tmp/stats.slow.0" bytes_read)
bytes_read() { ntx status --json | sed -n 's/.*"bytes_read": *\([0-9]*\).*/\1/p' | head -1; }
iod=$(child $up ntx-iod)
cleanup+=("kill -CONT $iod 2>/dev/null")
together() { # four clients at once; sets `all` to the bytes that they read
    kill -STOP "$iod"
    local b0 b1 pids=()
    b0=$(bytes_read)
    for i in 0 1 2 3; do gen $i together & pids+=($!); done
    wait_for 10 eval 'ntx status --json | grep -q "\"clients\": *6"' ||
        fail "the four, who asks and ntx up are not there: $(ntx status --json)"
    kill -CONT "$iod"
    for p in "${pids[@]}"; do wait "$p" || fail "a client of four failed"; done
    for i in 0 1 2 3; do same "$tmp/alone.$i" "$tmp/together.$i" "client $i"; done
    b1=$(bytes_read)
    [ -n "$b0" ] && [ -n "$b1" ] || fail "status has no bytes_read"
    all=$((b1 - b0))
    echo "four together read $all bytes, one alone $one"
    [ $all -le $((one * 12 / 10)) ]
}
# On a busy machine a request may come late and miss some passes, so there are three tries.
together || together || together || fail "four clients read $all bytes, one reads $one"

# A client that leaves releases what it used.
"$NTX_BIN/ntx" generate "A story" --raw --ignore-eos --quiet >/dev/null & # itself, not a shell around it: it is killed
p=$!
wait_for 10 eval 'ntx status --json | grep -q "\"sessions\": *1"' || fail "session not seen"
kill -9 $p
wait_for 10 eval 'ntx status --json | grep -q "\"sessions\": *0"' || fail "session not freed"

"$NTX_BIN/ntx-top" --once --interval 0.2 >"$tmp/top" || fail "ntx-top"
grep -q ' iod [0-9.]* [KMG]iB' "$tmp/top" && grep -q 'limit: ' "$tmp/top" || fail "ntx-top: $(cat "$tmp/top")"

# A conversation keeps its KV; its second answer comes from the same session.
printf 'hello\nand then?\n' | ntx chat --chat-template plain --temp 0 -n 8 --quiet >"$tmp/chat" || fail "chat"
[ -s "$tmp/chat" ] || fail "chat said nothing"

ntx unload || fail "unload"
ntx generate "x" --raw -n 2 --quiet >/dev/null 2>"$tmp/err" && fail "generate without a model"
grep -q 'load' "$tmp/err" || fail "generate without a model: $(cat "$tmp/err")"
ntx load "$tmp/m.gguf" --ram 16M --ctx 128 --quiet || fail "load"
gen 0 again || fail "generate after load"
same "$tmp/alone.0" "$tmp/again.0" "after unload and load"
ntx stop || fail "stop"
wait $up || fail "ntx up ended with $?: $(cat "$tmp/up.log")"
[ -z "$(ls -A "$NTX_RUNTIME" 2>/dev/null)" ] || fail "left behind: $(ls "$NTX_RUNTIME")"

# The terminal is closed while a model is being loaded.
"$NTX_BIN/ntx" up "$tmp/m.gguf" --ram 16M --ctx 128 --link nvme=1M 2>"$tmp/up.log" &
up=$!
cleanup+=("kill -9 $up 2>/dev/null")
wait_for 20 eval 'ntx status --json 2>/dev/null | grep -q loading' || fail "not loading: $(cat "$tmp/up.log")"
kill -HUP $up
wait $up || fail "ntx up ended with $? by SIGHUP: $(cat "$tmp/up.log")"
[ -z "$(ls -A "$NTX_RUNTIME" 2>/dev/null)" ] || fail "left behind after SIGHUP: $(ls "$NTX_RUNTIME")"
