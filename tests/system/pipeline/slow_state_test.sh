#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The end waits until a state is written (--state), however slow the drive is: `ntx run` waits for its ntx-computed,
# which waits for its engine; systemd is told that it takes longer than TimeoutStopSec. A preloaded library emulates a
# drive that takes seconds per MiB.
. "$(dirname "$0")/../../lib/test.sh"
sanitized && skip "a sanitizer wants to be preloaded itself"
model "$tmp/m.gguf" --layers 10 --embd 256 --ff 512 --heads 4 --kv 4 --ctx 1024 --type Q8_0 --seed 3
text=$(words 900)
asked=("$tmp/m.gguf" "$text" --raw --temp 0 --ignore-eos -n 4 --ctx 1024 --ram 128M --quiet)
slow=(env LD_PRELOAD="$NTX_BUILD/tests/libslow_write.so" NTX_WRITE_MS=3500)
ntx run "${asked[@]}" >"$tmp/want" || fail "undisturbed run"

# A fake systemd that records the daemons' notifications, with times in seconds.
python3 -u - "$tmp/notify" >"$tmp/told" <<'PY' &
import socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(int(time.monotonic()), s.recv(4096).decode().replace("\n", " "), flush=True)
PY
cleanup+=("kill $! 2>/dev/null")
wait_for 10 test -S "$tmp/notify" || fail "nobody listens"
mkdir -m 700 "$tmp/run"
export XDG_RUNTIME_DIR=$tmp/run
"${slow[@]}" NOTIFY_SOCKET="$tmp/notify" "$NTX_BIN/ntx" up "$tmp/m.gguf" --ctx 1024 --ram 128M \
    --state "$tmp/up-state" 2>"$tmp/up" & up=$!
cleanup+=("kill $up 2>/dev/null")
wait_for 20 grep -q '^ntx: ready' "$tmp/up" || fail "ntx up: $(cat "$tmp/up")"
ntx generate "$text" --raw --temp 0 --ignore-eos -n 4 --quiet >"$tmp/got" || fail "generate"
same "$tmp/want" "$tmp/got" "by the daemons"

# Both at once: `ntx stop` of these, and a run of its own.
(time -p "${slow[@]}" "$NTX_BIN/ntx" run "${asked[@]}" --state "$tmp/run-state" >"$tmp/out") 2>"$tmp/time" & run=$!
cleanup+=("kill $run 2>/dev/null")
ntx stop || fail "stop: $(cat "$tmp/up")"
wait $up || fail "ntx up ended with $?: $(cat "$tmp/up")"
wait $run || fail "run: $(cat "$tmp/time")"
same "$tmp/want" "$tmp/out" "the run"
took=$(sed -n 's/^real \([0-9]*\).*/\1/p' "$tmp/time")
[ "$took" -ge 14 ] || fail "the run took $took s: its drive was not slow"
for state in up-state run-state; do
    ntx run "${asked[@]}" --state "$tmp/$state" --stats "$tmp/stats" >"$tmp/got" || fail "again, by $state"
    same "$tmp/want" "$tmp/got" "by $state"
    [ "$(stat_of "$tmp/stats" cached_tokens)" -ge 600 ] || fail "$state was lost: $(ls -la "$tmp/$state")"
done

# STOPPING with the grace period (30 s by default; 2 with `ntx up`), then again and again as long as the file grows,
# each time for longer than the time until the next one.
python3 - "$tmp/told" <<'PY' || fail "what systemd was told: $(cat "$tmp/told")"
import re, sys
told = [(int(l.split()[0]), l) for l in open(sys.argv[1])]
begin, = [t for t, l in told if "STOPPING=1 EXTEND_TIMEOUT_USEC=" in l]
more = [(t, int(re.search(r"EXTEND_TIMEOUT_USEC=(\d+)", l)[1]) / 1e6) for t, l in told if "EXTEND_TIMEOUT_USEC=" in l]
assert len(more) >= 4 and more[-1][0] >= begin + 7, more
assert all(until > 11 and t + until > after for (t, until), (after, _) in zip(more, more[1:])), more
PY
# A user who waits for the end is told the reason, and can abort it.
"${slow[@]}" env --default-signal=INT "$NTX_BIN/ntx" run "${asked[@]}" \
    --state "$tmp/left-state" >"$tmp/out" 2>"$tmp/err" & run=$!
wait_for 30 grep -q '^ntx: writing the computed prefixes .*Ctrl-C skips that$' "$tmp/err" ||
    fail "a long end is not told: $(cat "$tmp/err")"
kill -INT $run
begin=$SECONDS
wait $run || fail "a run whose state was left ended with $?: $(cat "$tmp/err")"
[ $((SECONDS - begin)) -le $((3 * $(patience))) ] && [ "$(wc -l <"$tmp/err")" = 1 ] ||
    fail "Ctrl-C, and an end after $((SECONDS - begin)) s: $(cat "$tmp/err")"
same "$tmp/want" "$tmp/out" "the run whose state was left"
! ls "$tmp/left-state" | grep '\.prefix$' || fail "a state that was left is there"
finish "a state of $(stat -c %s "$tmp"/run-state/*.prefix | sort -n | tail -1) bytes is waited for, $took s"
