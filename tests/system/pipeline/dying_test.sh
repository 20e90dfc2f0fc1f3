#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Workers that die again and again: before they have read or answered anything, at their start, and at each chunk.
# Clients do not wait for ever, and get an error that says how the workers end. If there is progress between two deaths,
# the run goes on, however often they die.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 3
options=("$tmp/m.gguf" "Once upon a time there was" --raw --ignore-eos --ram 12M --ctx 64 -n 6)
run=(timeout 100 "$NTX_BIN/ntx" run "${options[@]}")
"${run[@]}" --quiet >"$tmp/want" || fail "undisturbed run"

# the line of the error, and its exit code
refused() { # WHAT CODE PATTERN
    [ "$2" = 111 ] && [ "$(wc -l <"$tmp/err")" = 1 ] && grep -Eq "$3" "$tmp/err" ||
        fail "$1: exit $2: $(cat "$tmp/err")"
    ! grep -q 'build' "$tmp/err" || fail "$1: another build is blamed: $(cat "$tmp/err")"
}

# ---- ntx-iod dies before it delivers: while the model is loaded, and in the midst of an answer
for fault in iod:kill@read=1 iod:kill@nth=9; do
    "${run[@]}" --quiet --fault "$fault" >"$tmp/got" 2>"$tmp/err"
    refused "$fault" $? \
        'ntx-iod ended 10 times in a row before it had read anything \(the last time: killed by signal 9, Killed\)'
done
# with progress between deaths: each process reads its share and dies, some dozens of times
"${run[@]}" --quiet --fault "iod:kill@state=READY,nth=9" >"$tmp/got" 2>"$tmp/err" ||
    fail "with progress: exit $?: $(cat "$tmp/err")"
same "$tmp/want" "$tmp/got" "killed at each ninth chunk"

# ---- ntx-predictor dies at each probe: the answer is the whole model's, and that is said once
"${run[@]}" --skip script:3,5 --fault predictor:kill@probe=1 --stats "$tmp/s.json" >"$tmp/got" 2>"$tmp/err" ||
    fail "predictor: exit $?: $(cat "$tmp/err")"
same "$tmp/want" "$tmp/got" "without a predictor"
grep -q '"predictor_lost": *true' "$tmp/s.json" || fail "the statistics do not say that the predictor was lost"
[ "$(grep -c 'ntx-predictor' "$tmp/err")" = 1 ] &&
    grep -q 'ntx-predictor does not answer (it ended: killed by signal 9, Killed)' "$tmp/err" ||
    fail "not told once: $(cat "$tmp/err")"

# ---- programs that cannot start
mkdir "$tmp/bin"
broken() { # NAME LINE
    rm -f "$tmp/bin"/*
    cp "$NTX_BIN"/ntx "$NTX_BIN"/ntx-computed "$NTX_BIN"/ntx-iod "$NTX_BIN"/ntx-predictor "$tmp/bin"
    rm "$tmp/bin/$1" # a new file, not what a link may name
    printf '#!/bin/sh\necho x >>%s\n%s\n' "$tmp/starts" "$2" >"$tmp/bin/$1"
    chmod +x "$tmp/bin/$1"
    : >"$tmp/starts"
}
for how in 'exit 139:exit code 139' 'kill -9 $$:killed by signal 9, Killed'; do
    broken ntx-iod "${how%%:*}"
    timeout 100 "$tmp/bin/ntx" run "${options[@]}" --quiet >"$tmp/got" 2>"$tmp/err"
    refused "ntx-iod: $how" $? "ntx-iod did not get ready within 10 s: it ended, the last time ${how#*:}"
    [ "$(wc -l <"$tmp/starts")" -lt 40 ] || fail "$how: started $(wc -l <"$tmp/starts") times"
done
broken ntx-predictor 'exit 139'
timeout 100 "$tmp/bin/ntx" run "${options[@]}" --stats "$tmp/s.json" >"$tmp/got" 2>"$tmp/err" ||
    fail "no predictor: exit $?: $(cat "$tmp/err")"
same "$tmp/want" "$tmp/got" "a predictor that cannot start"
[ "$(grep -c 'ntx-predictor.*exit code 139' "$tmp/err")" = 1 ] || fail "not told once: $(cat "$tmp/err")"
grep -q '"predictor_lost": *true' "$tmp/s.json" || fail "the statistics do not say that there is no predictor"
echo "nobody waits for workers that keep ending"
