#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Learned layer skip, from the command line: calibrate (streamed and resident, with any threads, the same sidecar),
# static and predictive runs, bytes that fall with the layers, refusals, and a predictor that dies or stays silent.
. "$(dirname "$0")/../../lib/test.sh"
m=$tmp/m.gguf
model "$m" --layers 10 --embd 256 --ff 768 --heads 8 --kv 2 --type Q8_0 --seed 4 --ctx 256
for i in $(seq 1 260); \
    do echo "the $i th fox of $((i * 7919 % 977)) ran over $((i * 31 % 57)) lazy dogs, and none of them saw it."; \
    done >"$tmp/text"
cal=(calibrate "$m" --text "$tmp/text" --ctx 128 --epochs 3 --limit 3000 --first 3 --threshold 0.9)
ntx "${cal[@]}" -o "$tmp/m.skip.gguf" --ram 6M --json --quiet >"$tmp/cal.json" || fail "calibrate"
ntx "${cal[@]}" -o "$tmp/again" --ram 1G --threads 3 --quiet || fail "calibrate, resident"
cmp -s "$tmp/m.skip.gguf" "$tmp/again" || fail "streamed and resident, two and three threads: the sidecars differ"
grep -q '"first": *3' "$tmp/cal.json" && grep -q '"false_skip"' "$tmp/cal.json" ||
    fail "calibrate --json: $(cat "$tmp/cal.json")"
# Without --threshold: by KL, on the end of the text. Random layers cannot be left out, so nothing is written.
cheap=(calibrate "$m" --text "$tmp/text" --ctx 16 --epochs 1 --limit 400 --first 7)
ntx "${cheap[@]}" -o "$tmp/kl" >"$tmp/out" 2>"$tmp/e" && fail "a sidecar that saves nothing was written"
grep -q "nothing was written.*--force" "$tmp/e" && [ ! -e "$tmp/kl" ] && [ ! -e "$tmp/kl.measuring" ] &&
    [ "$(grep -c "^predictive \|^static " "$tmp/out")" = 6 ] || fail "refusal: $(cat "$tmp/e" "$tmp/out")"
ntx "${cheap[@]}" -o "$tmp/kl" --force --json >"$tmp/kl.json" || fail "calibrate --force"
python3 - "$tmp/kl.json" <<'P' || fail "KL: $(cat "$tmp/kl.json")"
import json, sys

j = json.load(open(sys.argv[1]))
aim = j["kl"]["predictive"][1]
assert [p["level"] for p in j["kl"]["static"]] == [0.005, 0.02, 0.05]
assert all(p["kl"] <= p["level"] and p["layers"] == len(p["set"]) for p in j["kl"]["static"])
assert all(p["kl"] <= p["level"] and 0 <= p["bytes"] < 0.1 * p["layers"] + 1e-9 for p in j["kl"]["predictive"])
assert abs(j["threshold"] - (aim["threshold"] or 1)) < 1e-6 and aim["bytes"] < 0.1, j["threshold"]
P

run=(ntx run "$m" "Once upon a time" --raw --ignore-eos -n 24 --ctx 64 --quiet)
slow=(--ram 6M --ring 4 --chunk 256K --link nvme=100M)
patient=("${slow[@]}" --link nvme=20M) # decisions are in time, also on a busy machine
"${run[@]}" "${slow[@]}" --stats "$tmp/off.json" >"$tmp/off" || fail "run without skipping"
"${run[@]}" "${slow[@]}" --skip predictive --skip-threshold 0.3 --stats "$tmp/p.json" >"$tmp/p" || fail "predictive run"
"${run[@]}" --ram 1G --skip predictive --skip-threshold 0.3 --stats "$tmp/r.json" >"$tmp/r" ||
    fail "predictive run, resident"
same "$tmp/p" "$tmp/r" "predictive, streamed and resident"
cmp -s "$tmp/off" "$tmp/p" && fail "skipping changed nothing"
grep -q 'skip:predictive:threshold=0.3 kv=propagate' "$tmp/p.json" || fail "the statistics do not name the lossy mode"
n=$(stat_of "$tmp/p.json" skipped_layers_per_token)
awk "BEGIN { exit !($n > 0.5 && $n <= 6) }" || fail "$n layers skipped per token"

"${run[@]}" "${slow[@]}" --skip predictive --skip-threshold 0.3 --kv-type q8_0 --stats "$tmp/8.json" >"$tmp/8" ||
    fail "predictive run, KV in Q8_0"
"${run[@]}" --ram 1G --rows 3 --threads 1 --skip predictive --skip-threshold 0.3 --kv-type q8_0 >"$tmp/8r" ||
    fail "predictive run, KV in Q8_0, resident"
same "$tmp/8" "$tmp/8r" "predictive with KV in Q8_0, streamed and resident"
grep -q '"kv_q8_0"' "$tmp/8.json" && grep -q 'skip:predictive' "$tmp/8.json" ||
    fail "the statistics do not name both lossy modes"

# static with threshold 0 skips layers 3 to 8 for every token: six of ten layers' bytes are not read, but for what was
# on its way
"${run[@]}" "${patient[@]}" --skip static --skip-threshold 0 --skip-kv hole --stats "$tmp/s.json" >"$tmp/s" ||
    fail "static run"
"${run[@]}" "${slow[@]}" --skip script:3-8 >"$tmp/script" || fail "scripted run"
[ "$(stat_of "$tmp/s.json" skip_late_chunks)" -le "$(($(stat_of "$tmp/s.json" skip_early_chunks) / 4))" ] ||
    fail "late: $(grep skip_ "$tmp/s.json")"
a=$(stat_of "$tmp/off.json" bytes_read_per_token) b=$(stat_of "$tmp/s.json" bytes_read_per_token)
w=$(stat_of "$tmp/s.json" skip_wasted_bytes)
echo "bytes per token: $a, with six of ten layers skipped $b (late in all: $w)"
awk "BEGIN { exit !($b < 0.62 * $a + $w / 23) }" || fail "six of ten layers skipped, but $b of $a bytes read per token"
"${run[@]}" "${patient[@]}" --skip static --skip-threshold 0 --stats "$tmp/k.json" >"$tmp/k" || fail "propagating run"
c=$(stat_of "$tmp/k.json" bytes_read_per_token) cw=$(stat_of "$tmp/k.json" skip_wasted_bytes)
echo "bytes per token: $c with K and V of skipped layers (late in all: $cw)"
# Wasted reads depend on how early each decision came: neither sum includes them.
awk "BEGIN { exit !($c - $cw / 23 > $b - $w / 23 && $c < 0.8 * $a + $cw / 23) }" ||
    fail "K and V of skipped layers: $c bytes per token, $b without"

"${run[@]}" --ram 1G --skip predictive --skip-threshold 0.3 --skip-adapt --skip-verify 4 \
    --stats "$tmp/v.json" >"$tmp/v" || fail "adapting run"
"${run[@]}" --ram 6M --rows 3 --skip predictive --skip-threshold 0.3 --skip-adapt --skip-verify 4 >"$tmp/v2" ||
    fail "adapting run, streamed, short passes"
same "$tmp/v" "$tmp/v2" "adapting, streamed and resident"
grep -q 'adapt verify=4' "$tmp/v.json" || fail "the statistics do not name adaptation"
v=$(stat_of "$tmp/v.json" skipped_layers_per_token)
"${run[@]}" --ram 1G --skip static --skip-threshold 0 --skip-verify 4 --stats "$tmp/q.json" >/dev/null ||
    fail "verifying run"
[ "$(stat_of "$tmp/q.json" skipped_layers_per_token)" = 4.5 ] ||
    fail "18 of 23 generated tokens skip six layers, of 24: got $(stat_of "$tmp/q.json" skipped_layers_per_token)"

"${run[@]}" --ram 1G --skip predictive --skip-threshold 0.3 \
    --fault 'predictor:kill@decision=3,start=1;kill@probe=2,start=2' --stats "$tmp/d.json" >"$tmp/d" ||
    fail "killed predictor"
same "$tmp/r" "$tmp/d" "a predictor killed twice"
grep -q '"predictor_lost": *false' "$tmp/d.json" || fail "a killed predictor counts as lost"
"${run[@]}" --ram 1G --skip predictive --skip-threshold 0.3 \
    --fault 'predictor:delay=2s@start=1;kill@decision=2,start=1' --stats "$tmp/t.json" >"$tmp/t" ||
    fail "stalled predictor"
same "$tmp/r" "$tmp/t" "a predictor that stalls twice for 2 s, and dies"
grep -q '"predictor_lost": *false' "$tmp/t.json" || fail "a predictor that stalls for 2 s counts as lost"
"${run[@]}" --ram 1G --skip predictive --skip-threshold 0.3 --fault predictor:mute --stats "$tmp/l.json" >"$tmp/l" ||
    fail "silent predictor"
same "$tmp/off" "$tmp/l" "no answer for 5 s: the run goes on without skipping"
grep -q '"predictor_lost": *true' "$tmp/l.json" || fail "predictor_lost is not said"

head -40 "$tmp/text" >"$tmp/some" # token by token: a pass each
ntx perplexity "$m" "$tmp/some" --ctx 64 --ram 1G --skip static --skip-threshold 0 --json >"$tmp/ppl.json" ||
    fail "perplexity with skipping"
grep -q '"skipped_layers_per_token":6.0' "$tmp/ppl.json" || fail "perplexity does not skip: $(cat "$tmp/ppl.json")"
ntx perplexity "$m" "$tmp/some" --ctx 64 --ram 1G --json >"$tmp/ppl1.json" || fail "perplexity"
ntx perplexity "$m" "$tmp/some" --ctx 64 --ram 1G --skip predictive --skip-threshold 1 --json >"$tmp/ppl2.json" ||
    fail "perplexity with a policy that never skips"
[ "$(sed 's/.*"nll":\([^,]*\).*/\1/' "$tmp/ppl1.json")" = "$(sed 's/.*"nll":\([^,]*\).*/\1/' "$tmp/ppl2.json")" ] ||
    fail "token by token is not the same as at once"

says() { # TEXT COMMAND...
    local text=$1; shift
    "$@" >"$tmp/out" 2>"$tmp/err" && fail "$*: succeeded"
    grep -q "$text" "$tmp/err" && [ "$(wc -l <"$tmp/err")" = 1 ] || fail "$*: $(cat "$tmp/err")"
}
model "$tmp/other.gguf" --layers 10 --embd 256 --ff 768 --heads 8 --kv 2 --type Q8_0 --seed 5 --ctx 256
says "belongs to another model" ntx run "$tmp/other.gguf" x -n 1 --quiet --skip predictive --sidecar "$tmp/m.skip.gguf"
says "ntx calibrate" ntx run "$tmp/other.gguf" x -n 1 --quiet --skip static
says "sidecar" ntx run "$m" x -n 1 --quiet --skip predictive --sidecar "$m"
head -c 3000 "$tmp/m.skip.gguf" >"$tmp/short"
says "sidecar" ntx run "$m" x -n 1 --quiet --skip predictive --sidecar "$tmp/short"
