#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Text with drafts is the text without, with any drafter, together with all that changes a pass or a draw: several
# clients in one pass, sparse FFN, a grammar's masks, skipped layers, KV in Q8_0. draft_test.sh and drafter_test.sh
# cover samplers, budgets and deaths.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
models=$(dirname "$0")/../../../models
demo=$models/demo.gguf small=$models/demo-draft.gguf
ways=(lookup "$small" "lookup,$small")
prompts=("Tom had a red ball. Tom had a red ball. Tom had a" "Once upon a time there was a little girl who" \
    "In the park they saw")

# all WHAT MODEL PROMPT HOW...: without drafts, and with each drafter; at least LEAST drafts per pass
all() {
    local what=$1 model=$2 prompt=$3; shift 3
    ntx run "$model" "$prompt" --quiet --ctx 256 --draft off "$@" >"$tmp/plain" || fail "$what: plain"
    [ -s "$tmp/plain" ] || fail "$what: no text"
    for way in "${ways[@]}"; do
        ntx run "$model" "$prompt" --quiet --ctx 256 --draft "$way" --draft-nodes 12 \
            --stats "$tmp/s" "$@" >"$tmp/drafts" || fail "$what: --draft $way"
        same "$tmp/plain" "$tmp/drafts" "$what, --draft $way"
        awk -v x="$(stat_of "$tmp/s" draft_nodes_per_pass)" -v y="$least" 'BEGIN {exit !(x >= y)}' ||
            fail "$what, --draft $way: $(stat_of "$tmp/s" draft_nodes_per_pass) drafts a pass"
        echo "$what, $(stat_of "$tmp/s" draft): $(stat_of "$tmp/s" accepted_per_pass) tokens per pass"
    done
}
text=(--raw --ignore-eos -n 60)
least=0.5
ntx pack "$models/demo-relu.gguf" "$tmp/relu.gguf" --group 8K --force --quiet || fail "pack"
all "some neurons" "$tmp/relu.gguf" "${prompts[0]}" "${text[@]}" --temp 0.7 --seed 3 --ffn-sparse topk=0.3
all "some neurons, streamed" "$tmp/relu.gguf" "${prompts[0]}" "${text[@]}" --temp 0.7 --seed 3 --ffn-sparse topk=0.3 \
    --ram 16M
all "neurons of the prompt" "$tmp/relu.gguf" "${prompts[0]}" "${text[@]}" --temp 0 --ffn-sparse prompt=0.5
all "experts" "$models/demo-moe.gguf" "${prompts[0]}" "${text[@]}" --temp 0.5 --seed 4 --ram 24M
all q8_0 "$demo" "${prompts[0]}" "${text[@]}" --temp 0.5 --seed 7 --kv-type q8_0 --ram 14M --rows 32
printf %s \
    '{"type": "object", "additionalProperties": false, "required": ["name", "age"], "properties": {' \
    '"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 99}}}' >"$tmp/schema"
all "masks" "$demo" "Tell me." --json-schema "$tmp/schema" --temp 1 --seed 2 --min-p 0 --top-k 0 -n 80
all "typical" "$demo" "${prompts[0]}" "${text[@]}" --temp 1 --seed 2 --typical-p 0.5 --top-k 0 --ram 14M --rows 32
all "mirostat 1" "$demo" "${prompts[0]}" "${text[@]}" --temp 1 --seed 2 --mirostat 1 --mirostat-tau 2
cp "$tmp/plain" "$tmp/whole"
all "mirostat 1, streamed" "$demo" "${prompts[0]}" "${text[@]}" --temp 1 --seed 2 --mirostat 1 --mirostat-tau 2 \
    --ram 14M --rows 32
same "$tmp/whole" "$tmp/plain" "mirostat 1, resident and streamed"
all "mirostat 2" "$demo" "${prompts[0]}" "${text[@]}" --temp 1 --seed 3 --mirostat 2 --mirostat-tau 2 --mirostat-eta 0.3
# A drafted token skips the layers that the token itself would. Every so many tokens nothing is skipped, which may
# change the policy: drafts end before that token.
all "layers skipped by the first row of a pass" "$demo" "${prompts[0]}" "${text[@]}" --temp 0 --skip script:3-4@0
all "other layers for each token" "$demo" "${prompts[0]}" "${text[@]}" --temp 0.8 --seed 6 --skip random:0.4,2-6 \
    --ram 14M --rows 32
ntx calibrate "$demo" --text "$models/held-out.txt" --ctx 128 --limit 500 --epochs 1 --threshold 0.9 \
    -o "$tmp/skip.gguf" --quiet ||
    fail "calibrate"
learned=(--skip predictive --sidecar "$tmp/skip.gguf" --skip-threshold 0.3 --skip-verify 5 --skip-adapt)
all "a policy that is moved" "$demo" "${prompts[0]}" "${text[@]}" --temp 0 "${learned[@]}"
skipped=$(stat_of "$tmp/s" skipped_layers_per_token)
awk -v x="$skipped" 'BEGIN {exit !(x >= 0.5)}' || fail "$skipped layers skipped per token"
ntx run "$demo" "${prompts[0]}" --quiet --ctx 256 "${text[@]}" --temp 0 "${learned[@]}" --draft lookup \
    --draft-nodes 12 --fault predictor:kill@decision=9,start=1 >"$tmp/killed" ||
    fail "the predictor is killed while drafts wait for it"
same "$tmp/plain" "$tmp/killed" "layers skipped, drafts, a killed predictor"

# Several clients, whose texts share passes; the small model is killed once meanwhile.
export NTX_RUNTIME=$tmp/rt
generate() {
    ntx generate "${prompts[$1]}" "${text[@]}" --quiet --temp "0.$((2 * $1))" --seed 5 \
        --stats "$tmp/s.$2.$1" >"$tmp/$2.$1"
}
for way in off "${ways[@]}"; do
    rm -f "$tmp/up.log" # else the one before says that it is ready
    "$NTX_BIN/ntx" up "$demo" --ctx 256 --sessions 3 --ram 24M --draft "$way" --draft-nodes 12 2>"$tmp/up.log" &
    up=$!
    cleanup+=("kill -9 $up 2>/dev/null")
    wait_for 20 grep -q 'ready' "$tmp/up.log" || fail "not ready: $(cat "$tmp/up.log")"
    pids=()
    for i in 0 1 2; do generate $i "${way##*/}" & pids+=($!); done
    victim=$(child $up ntx-predictor) && kill -9 "$victim"
    for p in "${pids[@]}"; do wait "$p" || fail "a client of three failed, --draft $way"; done
    for i in 0 1 2; do same "$tmp/off.$i" "$tmp/${way##*/}.$i" "client $i, --draft $way"; done
    kill $up
    wait $up || fail "ntx up ended with $?"
done
echo "the same texts, with every drafter"

# Statistics of drafts are there at the next load, of the model and of its drafter; an invalid file is ignored, with a
# message.
one() {
    ntx run "$demo" "${prompts[1]}" --quiet --ctx 256 "${text[@]}" --temp 0 --ram 16M --draft "$small" \
        --draft-nodes 12 2>"$tmp/log"
}
rm -rf "$tmp/cache"
one >"$tmp/plain" || fail "first load: $(cat "$tmp/log")"
learned=$(echo "$tmp"/cache/ntx/drafts/*.json)
passes() { python3 -c 'import json, sys; print(int(json.load(open(sys.argv[1]))["ranks"][1]["passes"]))' "$learned"; }
first=$(passes) || fail "nothing was kept: $learned"
one >"$tmp/again" || fail "second load: $(cat "$tmp/log")"
[ "$first" -ge 8 ] && [ "$(passes)" -gt "$first" ] ||
    fail "the second load did not go on from the first: $first, $(passes) passes"
same "$tmp/plain" "$tmp/again" "the text of the second load"
echo '{"ntx_draft_stats": 2, "held": [1e999]}' >"$learned"
one >"$tmp/again" || fail "a bad file: $(cat "$tmp/log")"
same "$tmp/plain" "$tmp/again" "the text after a bad file"
[ "$(passes)" -ge 8 ] || fail "a bad file was not replaced"
echo "kept: $first passes, then $(passes)"

# At the next loads, a drafter that did not pay leaves its memory to weights: the run reads as much as one without
# drafter, and reports it. A fixed number of drafts keeps the drafter.
rm -rf "$tmp/cache"
few() {
    ntx run "$models/demo-moe.gguf" "${prompts[1]}" --quiet --ctx 256 "${text[@]}" --temp 0 --ram 20M \
        --stats "$tmp/s" "$@"
}
few --draft off >"$tmp/plain" || fail "experts, without"
plain=$(stat_of "$tmp/s" bytes_read_per_token)
few --draft "$small" >"$tmp/got" || fail "experts, a drafter"
same "$tmp/plain" "$tmp/got" "experts, a drafter"
grep -q draft_left_out "$tmp/s" && fail "left out before anything was learned"
learned=$(echo "$tmp"/cache/ntx/drafts/*.json)
python3 -c 'import json, sys
j = json.load(open(sys.argv[1]))
for p in j["places"]: p.update(on=False, rate=[1e-7, 5e-8])
json.dump(j, open(sys.argv[1], "w"))' "$learned" || fail "what was learned"
few --draft "$small" >"$tmp/got" || fail "a drafter that does not pay"
same "$tmp/plain" "$tmp/got" "a drafter that does not pay"
grep -q '"draft_left_out": true' "$tmp/s" && [ "$(stat_of "$tmp/s" draft)" = off ] ||
    fail "the statistics do not say that it was left out"
awk -v x="$(stat_of "$tmp/s" bytes_read_per_token)" -v y="$plain" 'BEGIN {exit !(x < 1.08 * y && x > 0.92 * y)}' ||
    fail "left out, $(stat_of "$tmp/s" bytes_read_per_token) bytes a token are read, $plain without"
grep -q '"away": 1' "$learned" || fail "it is not counted: $(cat "$learned")"
few --draft "$small" --draft-nodes 6 >"$tmp/got" || fail "so many drafts"
same "$tmp/plain" "$tmp/got" "so many drafts"
grep -q draft_left_out "$tmp/s" && fail "left out, though a number was asked for"
:
