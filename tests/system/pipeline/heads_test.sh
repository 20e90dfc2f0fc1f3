#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --draft FILE with a drafter that uses states of the model's layers: text with its drafts is the text without, byte for
# byte, resident and streamed, after deaths, with other drafters beside it. Fewer passes if it is right; plan counts its
# memory; a drafter of another model, or one that is too large, is refused in one line.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
head=(--arch eagle3 --layers 1 --embd 128 --heads 4 --ff 128)
# both WHAT MODEL DRAFT HOW...: the same command without and with
both() {
    local what=$1 model=$2 draft=$3; shift 3
    ntx run "$model" "one two three" --raw -n 60 --ignore-eos --quiet --draft off "$@" >"$tmp/plain" ||
        fail "$what: plain"
    ntx run "$model" "one two three" --raw -n 60 --ignore-eos --quiet --draft "$draft" --draft-nodes 6 \
        --stats "$tmp/s" "$@" >"$tmp/got" || fail "$what: with drafts"
    same "$tmp/plain" "$tmp/got" "$what"
    echo "$what: $(stat_of "$tmp/s" accepted_per_pass) tokens per pass"
}
more_than() {
    awk -v x="$(stat_of "$tmp/s" "$1")" -v y="$2" 'BEGIN {exit !(x > y)}' ||
        fail "$1 is $(stat_of "$tmp/s" "$1"), not more than $2"
}
refused() { # refused WHAT WHY COMMAND...
    local what=$1 why=$2; shift 2
    "$@" >"$tmp/o" 2>"$tmp/e"
    [ $? = 111 ] && [ "$(wc -l <"$tmp/e")" = 1 ] && grep -q "$why" "$tmp/e" || fail "$what: $(cat "$tmp/e")"
}
model "$tmp/m.gguf" --layers 4 --embd 128 --heads 4 --kv 2 --ff 256 --type Q8_0 --seed 5 --nextn-agrees 0.1
model "$tmp/e.gguf" "${head[@]}" --kv 4 --taps 1,2,4 --type F32 --bare --nextn-agrees 0.05
model "$tmp/wrong.gguf" "${head[@]}" --kv 2 --taps 1,2,3 --type Q8_0 --draft-vocab 300 --seed 7
both "mostly right" "$tmp/m.gguf" "$tmp/e.gguf" --temp 0
more_than accepted_per_pass 1.5
[ "$(stat_of "$tmp/s" draft)" = file ] || fail "draft is $(stat_of "$tmp/s" draft)"
both "with a chance and a penalty, q8_0" "$tmp/m.gguf" "$tmp/e.gguf" --temp 0.6 --seed 3 --repeat-penalty 1.1 \
    --kv-type q8_0
both "mostly wrong" "$tmp/m.gguf" "$tmp/wrong.gguf" --temp 0.8 --seed 4
model "$tmp/f.gguf" --arch dflash --layers 2 --embd 128 --heads 4 --kv 2 --ff 128 --taps 1,2,3 --block 6 --type Q8_0 \
    --bare
both "dflash" "$tmp/m.gguf" "$tmp/f.gguf" --temp 0.7 --seed 6
[ "$(stat_of "$tmp/s" draft_nodes_per_pass | cut -d. -f1)" -gt 2 ] ||
    fail "dflash drafts $(stat_of "$tmp/s" draft_nodes_per_pass) a pass"
both "beside look-up" "$tmp/m.gguf" "lookup,$tmp/e.gguf" --temp 0.5 --seed 2
model "$tmp/d.gguf" --layers 1 --embd 64 --heads 2 --ff 96 --type Q8_0
both "beside a small model" "$tmp/m.gguf" "$tmp/d.gguf,$tmp/e.gguf" --temp 0.5 --seed 2
model "$tmp/big.gguf" --layers 12 --embd 256 --heads 4 --kv 2 --ff 1024 --type Q8_0 --seed 6 --nextn-agrees 0.1
model "$tmp/be.gguf" --arch eagle3 --layers 1 --embd 256 --heads 4 --kv 4 --ff 256 --taps 2,6,10 --type F32 \
    --bare --nextn-agrees 0.05
both "streamed" "$tmp/big.gguf" "$tmp/be.gguf" --temp 0.6 --seed 5 --ram 18M --ctx 256
more_than bytes_read 1000000
more_than accepted_per_pass 1.3
cp "$tmp/plain" "$tmp/streamed"
ntx run "$tmp/big.gguf" "one two three" --raw -n 60 --ignore-eos --quiet --temp 0.6 --seed 5 --ram 18M --ctx 256 \
    --draft "$tmp/be.gguf" >"$tmp/got" || fail "by what pays"
same "$tmp/streamed" "$tmp/got" "by what pays"
# the reader dies while drafts are verified
for fault in iod:kill@state=FILLING,nth=60,start=1 iod:kill@state=READY,nth=90,start=1; do
    ntx run "$tmp/big.gguf" "one two three" --raw -n 60 --ignore-eos --quiet --temp 0.6 --seed 5 --ram 18M --ctx 256 \
        --draft "$tmp/be.gguf" --draft-nodes 6 --fault "$fault" >"$tmp/got" || fail "$fault"
    same "$tmp/streamed" "$tmp/got" "$fault"
done
# Several clients at once, each with a tree of its own in the same pass.
ask=(--raw -n 40 --ignore-eos --quiet --temp 0.6)
for i in 1 2 3; do
    ntx run "$tmp/big.gguf" "one two $i" "${ask[@]}" --seed "$i" --draft off >"$tmp/alone$i" || fail "client $i alone"
done
export NTX_RUNTIME=$tmp/rt
mkdir -m 700 "$NTX_RUNTIME"
ntx up "$tmp/big.gguf" --quiet --ram 24M --ctx 128 --sessions 3 --draft "$tmp/be.gguf" --draft-nodes 6 2>"$tmp/up" &
up=$!
cleanup+=("kill $up 2>/dev/null; wait $up")
loaded() { ntx status --json 2>/dev/null | grep -Eq '"state": *"ready"'; }
wait_for 30 loaded || fail "not up: $(cat "$tmp/up")"
asked=()
for i in 1 2 3; do
    ntx generate "one two $i" "${ask[@]}" --seed "$i" --stats "$tmp/s$i" >"$tmp/beside$i" &
    asked+=($!)
done
for i in 1 2 3; do
    wait "${asked[$((i - 1))]}" || fail "client $i beside others"
    same "$tmp/alone$i" "$tmp/beside$i" "client $i beside others"
    cp "$tmp/s$i" "$tmp/s"
    more_than accepted_per_pass 1.3
done
ntx stop
wait "$up"
unset NTX_RUNTIME
model "$tmp/q.gguf" --arch qwen35 --layers 4 --embd 128 --heads 4 --kv 2 --head-dim 32 --ff 256 --type Q8_0 \
    --nextn-agrees 0.1
both "recurrent" "$tmp/q.gguf" "$tmp/e.gguf" --temp 0
both "recurrent, dflash" "$tmp/q.gguf" "$tmp/f.gguf" --temp 0.5 --seed 9
model "$tmp/qn.gguf" --arch qwen35 --layers 4 --embd 128 --heads 4 --kv 2 --head-dim 32 --ff 256 --type Q8_0 --nextn 1 \
    --nextn-agrees 0.1
# Its memory is in the plan: weights in F32, and what it works in.
work_of() {
    ntx plan "$tmp/m.gguf" --machine ram=1G,drive=3G --ram 64M --json --draft "$1" |
        awk -F'[:,]' '/"bytes_work"/ {print $2 + 0}'
}
more=$(($(work_of "$tmp/e.gguf") - $(work_of off)))
[ "$more" -gt "$(stat -c %s "$tmp/e.gguf")" ] && [ "$more" -lt 20000000 ] ||
    fail "the plan has $more bytes more for a drafter of $(stat -c %s "$tmp/e.gguf")"
refused "two that go by states" "there is already a drafter by the model's states" ntx run "$tmp/qn.gguf" x \
    --raw -n 4 --quiet --draft "nextn,$tmp/e.gguf"
refused "another model's" "the model's have 256: it is another model's" ntx run "$tmp/big.gguf" x --raw -n 4 \
    --quiet --draft "$tmp/e.gguf"
refused "too little memory" "ram" ntx run "$tmp/m.gguf" x --raw -n 4 --quiet --draft "$tmp/e.gguf" --ram 3M
refused "run as a model" "a drafter of the EAGLE-3 kind: name the model that it is for" ntx run "$tmp/e.gguf" x \
    --raw -n 4 --quiet
head -c 20000 "$tmp/e.gguf" >"$tmp/cut.gguf"
refused "run as a model" "a drafter of the DFlash kind: name the model that it is for" ntx run "$tmp/f.gguf" x \
    --raw -n 4 --quiet
refused "cut off" "drafter" ntx run "$tmp/m.gguf" x --raw -n 4 --quiet --draft "$tmp/cut.gguf"
echo ok
