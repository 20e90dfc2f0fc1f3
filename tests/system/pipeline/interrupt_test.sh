#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Ctrl-C ends `ntx run` at once, also in the middle of a pass that would never end, and leaves nothing behind. The next
# run removes what a run killed by SIGKILL leaves.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0
limit_ms=$((4000 * ${NTX_TEST_SLOW:-1})) # who does not end by itself is killed after 5 s
last=90 # a chunk late in the pass, read from the drive for each: once it is asked for, nothing comes any more

# stalled OPTIONS...: a run in the background, its pid in $pid
stalled() {
    rm -f "$tmp/out" "$tmp/err" # what is waited for there is to be this run's
    : >"$tmp/err"
    "$NTX_BIN/ntx" run "$tmp/m.gguf" hello -v --raw --ram 10M --threads 2 -n 40 --ignore-eos --temp 0 \
        --json "$@" >"$tmp/out" 2>"$tmp/err" &
    pid=$!
}
run_dirs() { find "$tmp" -maxdepth 1 -name 'ntx-run-*'; }

# interrupted NAME SIGNAL: the stalled run
interrupted() {
    local begin took code
    begin=$(date +%s%N)
    kill "-$2" "$pid"
    wait "$pid"; code=$?
    took=$((($(date +%s%N) - begin) / 1000000))
    [ $took -lt "$limit_ms" ] || [ $took -lt $((limit_ms * $(patience))) ] || fail "$1: ended after $took ms"
    case $2 in INT) [ $code = 130 ] ;; TERM) [ $code = 143 ] ;; esac || fail "$1: exit $code: $(cat "$tmp/err")"
    [ -z "$(run_dirs)" ] || fail "$1: left behind: $(ls "$tmp")"
    echo "$1, SIG$2: $took ms"
}
set -m # background jobs take SIGINT

for signal in INT TERM; do
    stalled --fault "iod:stall=600s@chunk=$last"
    wait_for 60 grep -q context "$tmp/err" || fail "prompt: not loaded: $(cat "$tmp/err")"
    interrupted prompt $signal
    ! grep -q '"token"' "$tmp/out" || fail "prompt: its pass was over: $(cat "$tmp/out")"
done
# A second Ctrl-C, while the end of the answer is waited for, prints nothing more.
stalled --fault "iod:stall=600s@chunk=$last"
wait_for 60 grep -q context "$tmp/err" || fail "twice: not loaded: $(cat "$tmp/err")"
computed=$(child $pid ntx-computed)
kill -STOP "$computed"
kill -INT "$pid"
sleep 0.3
kill -INT "$pid"
sleep 0.3
kill -CONT "$computed" 2>/dev/null
wait "$pid"; code=$?
[ $code = 130 ] && ! grep -q '^ntx: Input' "$tmp/err" || fail "twice: exit $code: $(cat "$tmp/err")"
for d in $(run_dirs); do rm -r "$d"; done
stalled --fault "iod:stall=600s@read=1"
wait_for 60 child $pid ntx-iod >/dev/null || fail "loading: the daemons did not come up"
interrupted loading INT
! grep -q context "$tmp/err" || fail "loading: it was over: $(cat "$tmp/err")"

# Other commands with private daemons end by the signal, too, without further messages.
for i in {1..400}; do echo "once upon a time there was number $i"; done >"$tmp/text"
for i in {1..30}; do echo "{\"prompt\": \"hello $i\", \"answer\": \"x\"}"; done >"$tmp/questions"
ready() { NTX_RUNTIME=$(run_dirs) ntx status --json 2>/dev/null | grep -q '"state": *"ready"' || [ -s "$tmp/err" ]; }
for c in "bench -p 8 -n 9" "perplexity $tmp/text --ctx 64" "eval --questions $tmp/questions --ctx 64" \
    "logits --tokens 1,2,3 -o $tmp/made --ctx 64" "imatrix $tmp/text -o $tmp/made --ctx 64" \
    "calibrate --text $tmp/text -o $tmp/made --ctx 64"; do
    # shellcheck disable=SC2086
    set -- $c
    : >"$tmp/err"
    # passes of a second
    "$NTX_BIN/ntx" "$1" "$tmp/m.gguf" "${@:2}" --ram 10M --quiet --link nvme=10M >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    wait_for 60 ready || fail "$1: does not compute: $(cat "$tmp/err")"
    sleep 0.2 # for its request
    interrupted "$1" INT
    [ ! -s "$tmp/err" ] || fail "$1: $(cat "$tmp/err")"
    rm -f "$tmp/made"
done

# Text that is held back as the possible beginning of a stop string is shown at the end, on a line of its own without a
# token.
"$NTX_BIN/ntx" run "$tmp/m.gguf" hello --raw --ram 10M -n 1 --ignore-eos --temp 0 --quiet | tr -d '\n' >"$tmp/first" ||
    fail "one token"
[ -s "$tmp/first" ] || fail "the first token has no text"
stalled --fault "iod:stall=600s@chunk=$last,nth=2" --stop "$(tail -c 1 "$tmp/first")"$'\x01'
wait_for 60 grep -q '"token"' "$tmp/out" || fail "no token: $(cat "$tmp/err")"
interrupted "second token" INT
python3 - "$tmp/out" "$tmp/first" <<'PY' || fail "held back: $(cat "$tmp/out")"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
first = open(sys.argv[2], "rb").read().decode(errors="replace")
assert [sorted(l) for l in lines] == [["text", "token"], ["text"], ["stats"]], lines
assert lines[0]["text"] + lines[1]["text"] == first and lines[1]["text"], (lines, first)
assert lines[0]["token"] >= 0 and lines[2]["stats"]["finish"] == "cancel", lines
PY
echo "held back and shown: $(tail -2 "$tmp/out" | head -1)"

# The next start removes the directories of runs that ended, in any way; those of running ones and all else stay.
one_token() {
    ntx run "$tmp/m.gguf" hello --raw --ram 10M -n 1 --quiet >/dev/null ||
        fail "a run beside others' directories"
}
killed() { # a run that could not clean up; its directory in $dir
    stalled --fault "iod:stall=600s@chunk=$last"
    wait_for 60 grep -q context "$tmp/err" || fail "killed: not loaded: $(cat "$tmp/err")"
    dir=$(run_dirs)
    daemons=$(pgrep -P $pid)
    kill -STOP $pid $daemons # first, so that nobody sees another's end
    kill -9 $pid $daemons    # and nobody cleans up
    wait $pid 2>/dev/null
    for d in $daemons; do wait_for 60 gone "$d" || fail "a daemon outlived its SIGKILL"; done
    [ -f "$dir/.ntx-run" ] && [ -e "$dir/counters" ] || fail "who would have removed what is in $dir?"
}
killed
one_token
[ ! -e "$dir" ] || fail "$dir is still there"

# Not removed: another user's directory with such a name, a file with such a name, a link to a run's directory, and a
# run's directory with a foreign file in it.
killed
outside=$tmp/outside
mkdir "$outside" && echo mine >"$outside/counters"
mkdir "$tmp/ntx-run-results" "$tmp/ntx-run-linked" && echo years >"$tmp/ntx-run-results/thesis.txt" &&
    echo years >"$tmp/ntx-run-results/counters"
ln -s "$outside/counters" "$tmp/ntx-run-linked/.ntx-run"
ln -s "$outside" "$tmp/ntx-run-link" && : >"$outside/.ntx-run" && : >"$tmp/ntx-run-file"
echo mine >"$dir/notes.txt" && ln -s "$outside/counters" "$dir/ci.1" && mkdir "$dir/cp.1"
left=$(cd "$tmp" &&
    find outside ntx-run-results ntx-run-linked ntx-run-link ntx-run-file "$(basename "$dir")"/{notes.txt,ci.1,cp.1} |
    sort)
touch -d '2 hours ago' "$tmp"/ntx-run-* "$outside"
before=$(run_dirs | sort)
stalled --fault "iod:stall=600s@chunk=$last"
wait_for 60 grep -q context "$tmp/err" || fail "living: not loaded: $(cat "$tmp/err")"
living=$(comm -13 <(echo "$before") <(run_dirs | sort))
touch -d '2 hours ago' "$living"
one_token
[ -e "$living/counters" ] && [ -S "$living/ntx.sock" ] || fail "the directory of a living run: $(ls -a "$living")"
now=$(cd "$tmp" && find outside ntx-run-results ntx-run-linked ntx-run-link ntx-run-file "$(basename "$dir")"/* | sort)
[ "$now" = "$left" ] || fail "left: $now; before: $left"
[ "$(cat "$tmp/ntx-run-results/thesis.txt" "$outside/counters" "$dir/notes.txt" | tr '\n' ' ')" = "years mine mine " \
    ] || fail "what is left is not what it was"
[ ! -e "$dir/.ntx-run" ] && [ ! -e "$dir/counters" ] || fail "what was ours is still there: $(ls -a "$dir")"
rm -r "$tmp"/ntx-run-{results,linked,link,file} "$dir" "$outside"
interrupted living INT
