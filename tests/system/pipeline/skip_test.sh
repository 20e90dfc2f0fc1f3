#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Layer skip with a scripted policy, through the predictor: layers 3 and 5 are skipped and their chunks not read, as the
# statistics show. A late decision changes the statistics, never a token.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/m.gguf" --layers 8 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 11
run=(ntx run "$tmp/m.gguf" "Once upon a time" --raw --ignore-eos -n 16 --ram 12M --ctx 64 --quiet)
"${run[@]}" --stats "$tmp/full.json" >"$tmp/full" || fail "full run"
"${run[@]}" --skip script:3,5 --stats "$tmp/skip.json" >"$tmp/skip" || fail "skipping run"
cmp -s "$tmp/full" "$tmp/skip" && fail "skipping two of eight layers changed nothing: is it done at all?"
[ "$(stat_of "$tmp/full.json" skipped_layers_per_token)" = "0.0" ] ||
    [ "$(stat_of "$tmp/full.json" skipped_layers_per_token)" = 0 ] || fail "full run skipped"
s=$(stat_of "$tmp/skip.json" skipped_layers_per_token)
case $s in 1.[89]*|2|2.0*) ;; *) fail "skipped_layers_per_token is $s, not about 2";; esac
grep -q 'script' "$tmp/skip.json" || fail "the statistics do not name the lossy mode"
"${run[@]}" --skip script:3,5 --fault predictor:delay=30ms --stats "$tmp/late.json" >"$tmp/late" || fail "delayed run"
same "$tmp/skip" "$tmp/late" "a delayed decision"
"${run[@]}" --skip script:3,5 --fault predictor:kill@decision=3,start=1 >"$tmp/killed" ||
    fail "run with a killed predictor"
same "$tmp/skip" "$tmp/killed" "a killed predictor"
"${run[@]}" --skip script:3,5 --ram 1G >"$tmp/resident" || fail "resident skipping run"
same "$tmp/skip" "$tmp/resident" "skipping, resident"
# Slow drive, small ring: decisions are ahead of the reads of layers 3 and 5, which are then not read.
"${run[@]}" -n 8 --link nvme=20M --ring 4 --stats "$tmp/slow.full" >/dev/null || fail "slow full run"
"${run[@]}" -n 8 --link nvme=20M --ring 4 --skip script:3,5 --stats "$tmp/slow.skip" >/dev/null ||
    fail "slow skipping run"
a=$(stat_of "$tmp/slow.full" bytes_read)
b=$(stat_of "$tmp/slow.skip" bytes_read)
echo "bytes read: $a with all layers, $b with two of eight skipped"
[ "$b" -lt $((a * 85 / 100)) ] || fail "skipping two of eight layers saved too little: $b of $a"

# with a recurrent state, several residual streams or a norm of the output in the last layer, none is skipped: one line
# says so, with the architecture
shape="--layers 4 --embd 128 --heads 4 --kv 2 --ff 96 --experts-used 2"
for arch in "qwen35 --head-dim 32 --rotated 16 --attention-every 2" \
    "qwen3next --experts 4 --head-dim 32 --rotated 16 --attention-every 2" \
    "kimi-linear --experts 4 --head-dim 48 --rotated 16 --kv-lora 64 --attention-every 2" \
    "hy_v4 --experts 4 --head-dim 48 --rotated 16 --kv-lora 64 --q-lora 32" "cohere2 --head-dim 32"; do
    # shellcheck disable=SC2086
    model "$tmp/no.gguf" $shape --arch $arch
    "$NTX_BIN/ntx" run "$tmp/no.gguf" x --raw -n 2 --ctx 64 --skip script:2 --quiet >"$tmp/out" 2>"$tmp/err" &&
        fail "layers of $arch were skipped"
    [ "$(wc -l <"$tmp/err")" = 1 ] &&
        grep -q -- "--skip: .*a ${arch%% *} model .*such a model runs without" "$tmp/err" ||
        fail "$arch: $(cat "$tmp/err")"
done
