#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 of ntx-iod and ntx-predictor at any moment: they restart and the text is the same. At every state transition
# of a slot, by fault injection; the predictor around probe and decision; at seeded random moments; and during the
# restart itself.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 3
run=("$NTX_BIN/ntx" run "$tmp/m.gguf" "Once upon a time there was" --raw --ignore-eos --ram 12M --ctx 64 --quiet -n 16)
"${run[@]}" >"$tmp/want" || fail "undisturbed run"
[ -s "$tmp/want" ] || fail "no text"
"${run[@]}" --skip script:3 >"$tmp/skipped" || fail "undisturbed run that skips a layer"

for fault in "iod:kill@state=FILLING,nth=1,start=1" "iod:kill@state=FILLING,nth=7,start=1" \
    "iod:kill@state=FILLING,nth=60,start=1" "iod:kill@state=READY,nth=1,start=1" "iod:kill@state=READY,nth=9,start=1" \
    "iod:kill@read=3,start=1" "iod:kill@read=77,start=1" "predictor:kill@probe=1,start=1" \
    "predictor:kill@probe=5,start=1" "predictor:kill@decision=1,start=1" "predictor:kill@decision=4,start=1" \
    "predictor:delay=20ms" "iod:short@every=7" "iod:eio@chunk=9,count=2" "iod:delay=5ms@every=9" "iod:reorder=8"; do
    skip=() want=$tmp/want
    [[ $fault = predictor:* ]] && skip=(--skip script:3) want=$tmp/skipped # it is asked only where a policy skips
    "${run[@]}" "${skip[@]}" --fault "$fault" >"$tmp/got" 2>"$tmp/err" || fail "$fault: exit $?: $(cat "$tmp/err")"
    same "$want" "$tmp/got" "$fault"
done

# A kill right after a read failed for good: the answer fails with the reason, without waiting for the restart.
timeout $((60 * $(patience))) "${run[@]}" \
    --fault "iod:eio@chunk=9,count=999;kill@state=FAILED,nth=1,start=1" >"$tmp/got" 2>"$tmp/err"
code=$?
[ $code = 111 ] && [ "$(wc -l <"$tmp/err")" = 1 ] &&
    grep -Eq 'm\.gguf: cannot read [0-9]+ bytes at offset [0-9]+: Input/output error' "$tmp/err" ||
    fail "killed at FAILED: exit $code: $(cat "$tmp/err")"

rounds=${NTX_KILL_ROUNDS:-12}
RANDOM=${NTX_SEED:-20261121}
kills=0
for ((i = 0; i < rounds; i++)); do
    "${run[@]}" --link nvme=150M >"$tmp/got" 2>"$tmp/err" &
    pid=$!
    # shellcheck disable=SC2034
    who=$([ $((RANDOM % 3)) = 0 ] && echo ntx-predictor || echo ntx-iod)
    victim=
    wait_for 20 eval 'victim=$(child $pid $who)' || fail "no $who"
    ms=$((RANDOM % 900))
    read -rt "$(printf '0.%03d' $ms)" <> <(:) || :
    victim=$(child $pid $who) && kill -9 "$victim" 2>/dev/null && kills=$((kills + 1))
    if [ $((i % 4)) = 3 ]; then # again, while it restarts
        wait_for 2 eval 'again=$(child $pid $who) && [ "$again" != "$victim" ]' && kill -9 "$again" 2>/dev/null &&
            kills=$((kills + 1))
    fi
    wait $pid || fail "round $i ($who after $ms ms): exit $?: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "round $i ($who after $ms ms)"
done
[ $kills -ge $((rounds / 2)) ] || fail "only $kills kills hit"
echo "identical text after 16 faults and $kills kills"
