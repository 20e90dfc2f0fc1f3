#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A small model as drafter (--draft FILE): the text is the text without, byte for byte, with any settings, and however
# often the drafter is killed. It takes fewer passes. A file that cannot be a drafter is refused in one line.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
models=$(dirname "$0")/../../../models
demo=$models/demo.gguf draft=$models/demo-draft.gguf
story="Once upon a time there was a little girl who"
# both WHAT LEAST HOW...: the same command without and with drafts, which must give LEAST tokens per pass. How many
# drafts come in time depends on the machine, so it may try again; with sanitizers, which slow the drafter down most,
# only the text counts.
both() {
    local what=$1 least=$2 try; shift 2
    [ "$NTX_TEST_SLOW" = 1 ] || least=1
    ntx run "$demo" "$story" --raw -n 150 --ignore-eos --quiet --ctx 512 --draft off "$@" >"$tmp/plain" ||
        fail "$what: plain"
    for try in 1 2 3 4 5; do
        ntx run "$demo" "$story" --raw -n 150 --ignore-eos --quiet --ctx 512 --draft "$draft" --draft-nodes 15 \
            --stats "$tmp/s" "$@" >"$tmp/drafts" || fail "$what: with drafts"
        same "$tmp/plain" "$tmp/drafts" "$what"
        echo "$what: $(stat_of "$tmp/s" accepted_per_pass) tokens per pass of $(stat_of "$tmp/s" \
            draft_nodes_per_pass) drafts, waited $(stat_of "$tmp/s" draft_s) s"
        awk -v x="$(stat_of "$tmp/s" accepted_per_pass)" -v y="$least" 'BEGIN {exit !(x >= y)}' && return
    done
    fail "$what: $(stat_of "$tmp/s" accepted_per_pass) tokens per pass"
}
both greedy 1.3 --temp 0
both sampled 1.3 --temp 0.8 --seed 4
both "sampled from all" 1.3 --temp 1 --seed 5 --top-k 0 --top-p 1 --min-p 0
both "repeat penalty" 1.2 --temp 0.7 --seed 6 --repeat-penalty 1.2
both "other penalties" 1 --temp 0.9 --seed 8 --presence-penalty 0.6 --frequency-penalty 0.4
both streamed 1.5 --temp 0.8 --seed 9 --ram 14M --rows 32 --ctx 256
both "few rows" 1.2 --temp 0.8 --seed 10 --rows 8 --ctx 256 -n 200
both q8_0 1.3 --temp 0.5 --seed 7 --kv-type q8_0 --threads 1
both "as many as pay" 1 --temp 0.8 --seed 11 --draft-nodes 1
# a drafter as slow as a pass is not waited for: how many of its drafts come in time depends on the machine
draft=$demo both "by the model itself" 1 --temp 0.8 --seed 12

# Lookup and the small model at once: each has hits where it can have any, and the text is the same.
many() { [ "$NTX_TEST_SLOW" != 1 ] || [ "$(hits "$1")" -gt 10 ]; }
hits() { sed -n '/"draft_hits"/,/}/p' "$tmp/s" >"$tmp/hits" && stat_of "$tmp/hits" "$1"; }
draft="lookup,$draft"
both "look-up and a small model" 1.3 --temp 0.8 --seed 4
[ "$(stat_of "$tmp/s" draft)" = lookup+file ] || fail "draft is $(stat_of "$tmp/s" draft)"
many file || fail "the small model has $(hits file) hits"
both "both, streamed" 1.5 --temp 0.8 --seed 9 --ram 14M --rows 32 --ctx 256
story="Tom had a red ball. Tom had a red ball. Tom had a red ball. Tom had a" both "both, where the text repeats" 1.3 \
    --temp 0
many lookup && many file || fail "$(hits lookup) hits by look-up, $(hits file) by the small model"
draft=${draft#lookup,}

# Without room for it the text itself drafts, and one line says so.
tom="Tom had a red ball. Tom had a red ball. Tom had a red ball. Tom had a"
little=(--raw -n 60 --ignore-eos --temp 0 --ctx 256 --rows 32 --ram 7M)
ntx run "$demo" "$tom" "${little[@]}" --quiet --draft off >"$tmp/plain" || fail "little memory: plain"
"$NTX_BIN/ntx" run "$demo" "$tom" "${little[@]}" -v --draft "$draft" --stats "$tmp/s" >"$tmp/got" 2>"$tmp/err" ||
    fail "little memory: $(cat "$tmp/err")"
same "$tmp/plain" "$tmp/got" "little memory"
grep -q "do not fit beside the model: the text itself drafts instead.*--ram [0-9]*M has room for both" "$tmp/err" ||
    fail "little memory: $(cat "$tmp/err")"
[ "$(stat_of "$tmp/s" draft_left_out)" = true ] || fail "little memory: it is not said to be left out"
[ "$(stat_of "$tmp/s" draft_accepted)" -gt 4 ] || fail "little memory: $(stat_of "$tmp/s" draft_accepted) drafts held"
ntx plan "$demo" --ctx 256 --rows 32 --ram 6M --draft "$draft" >"$tmp/plan" || fail "plan"
grep -q "does not fit beside the model: the text itself drafts instead" "$tmp/plan" || fail "plan: $(cat "$tmp/plan")"

# Where look-up alone would have written the last texts faster, the next load leaves the small model out.
copied=(ntx run "$demo" "$tom" --raw -n 60 --ignore-eos --quiet --temp 0 --ctx 256 --rows 32 --ram 14M --link nvme=60M)
"${copied[@]}" --draft off >"$tmp/plain" || fail "copied: plain"
learned() { # a line of Python on p, the place that is stored, and t, what its texts taught: tokens, ns, passes
    python3 -c "
import glob, json
name, = glob.glob('$XDG_CACHE_HOME/ntx/drafts/*.json')
all = json.load(open(name))
p = [p for p in all['places'] if p['way'] == 2][0]
t = p['texts']
$1
json.dump(all, open(name, 'w'))"
}
rm -rf "$XDG_CACHE_HOME/ntx/drafts"
"${copied[@]}" --draft "lookup,$draft" --stats "$tmp/s" >"$tmp/got" || fail "copied: the first load"
same "$tmp/plain" "$tmp/got" "copied"
learned "assert 20 <= t[0] <= 60 and t[1] > 0 and 1 <= t[2] <= 60 and p['line'][5] > 0, p"
learned "p['texts'] = [300, p['line'][5] * 20, 300]; p['rate'] = []" # 20 passes; look-up alone would have taken 300
"${copied[@]}" --draft "lookup,$draft" --stats "$tmp/s" >"$tmp/got" || fail "copied: look-up would be slower"
[ "$(stat_of "$tmp/s" draft_left_out)" != true ] || fail "copied: left out, though look-up would be slower"
learned "p['texts'] = [300, p['line'][5] * 30, 5]; p['rate'] = []"
"${copied[@]}" --draft "lookup,$draft" --stats "$tmp/s" >"$tmp/got" || fail "copied: look-up would be faster"
same "$tmp/plain" "$tmp/got" "copied, left out"
[ "$(stat_of "$tmp/s" draft_left_out)" = true ] || fail "copied: not left out, though look-up would be faster"
learned "assert p['away'] == 1, p"

# Killed at any time, and while it comes back.
run=("$NTX_BIN/ntx" run "$demo" "$story" --raw --ignore-eos --quiet --ctx 256 --temp 0.8 --seed 3 -n 60 --ram 14M \
    --rows 32)
"${run[@]}" --draft off >"$tmp/want" || fail "undisturbed"
kills=0 RANDOM=${NTX_SEED:-7}
for ((i = 0; i < ${NTX_KILL_ROUNDS:-8}; i++)); do
    "${run[@]}" --draft "$draft" --draft-nodes 15 --link nvme=60M >"$tmp/got" 2>"$tmp/err" &
    pid=$!
    for ((k = 0; k <= i % 3; k++)); do
        read -rt "$(printf '0.%03d' $((RANDOM % 600)))" <> <(:) || :
        victim=$(child $pid ntx-predictor) && kill -9 "$victim" 2>/dev/null && kills=$((kills + 1))
    done
    wait $pid || fail "round $i: exit $?: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "round $i"
done
[ $kills -ge 4 ] || fail "only $kills kills hit"

# refused FILE WORDS
refused() {
    timeout $((60 * $(patience))) "$NTX_BIN/ntx" run "$demo" x --raw -n 1 \
        --quiet --draft "$1" >"$tmp/out" 2>"$tmp/err" && fail "$1: not refused"
    [ "$(wc -l <"$tmp/err")" = 1 ] && grep -Eq -- "$2" "$tmp/err" || fail "$1: $(cat "$tmp/err")"
}
model "$tmp/other.gguf" --layers 2 --embd 256 --ff 256 --heads 8 --kv 2 --type F16 --seed 1
printf 'GGUF nonsense' >"$tmp/bad.gguf"
refused "$tmp/other.gguf" "the drafter: its vocabulary"
refused "$tmp/bad.gguf" "the drafter"
refused "$tmp/none.gguf" "none.gguf: No such file"
refused "lookup,$tmp/none.gguf" "none.gguf: No such file"
refused "$tmp" "not a regular file"
echo "identical text after $kills kills"
