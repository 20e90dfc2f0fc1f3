#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --draft nextn: text with drafts of the model's own next-token block is the text without, byte for byte, resident and
# streamed, and takes fewer passes where the block is right. auto uses the block by itself; a model without one gives an
# error.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
small=(--embd 128 --heads 4 --kv 2 --head-dim 32)
experts=(--experts 6 --experts-used 2 --expert-ff 64 --shared-ff 64)
# both WHAT MODEL HOW...: the same command without and with
both() {
    local what=$1 model=$2; shift 2
    ntx run "$model" "one two three" --raw -n 60 --ignore-eos --quiet --draft off "$@" >"$tmp/plain" ||
        fail "$what: plain"
    ntx run "$model" "one two three" --raw -n 60 --ignore-eos --quiet --draft nextn --draft-nodes 6 \
        --stats "$tmp/s" "$@" >"$tmp/got" || fail "$what: with drafts"
    same "$tmp/plain" "$tmp/got" "$what"
    [ "$(stat_of "$tmp/s" draft)" = nextn ] || fail "$what: draft is $(stat_of "$tmp/s" draft)"
    echo "$what: $(stat_of "$tmp/s" accepted_per_pass) tokens per pass"
    more_than accepted_per_pass 1.5
}
more_than() {
    awk -v x="$(stat_of "$tmp/s" "$1")" -v y="$2" 'BEGIN {exit !(x > y)}' ||
        fail "$1 is $(stat_of "$tmp/s" "$1"), not more than $2"
}
model "$tmp/glm.gguf" --arch glm4moe --layers 3 "${small[@]}" "${experts[@]}" --dense 1 --rotated 16 --type Q8_0 \
    --nextn 1 --nextn-agrees 0.1
both "glm4moe" "$tmp/glm.gguf" --temp 0
both "glm4moe, q8_0" "$tmp/glm.gguf" --temp 0.5 --seed 2 --kv-type q8_0
both "glm4moe, sampled, with a penalty" "$tmp/glm.gguf" --temp 0.7 --seed 3 --repeat-penalty 1.1
model "$tmp/ds.gguf" --arch deepseek2 --layers 3 --embd 128 --heads 4 --kv 4 "${experts[@]}" --head-dim 48 \
    --rotated 16 --value-dim 32 --kv-lora 64 --dense 1 --type Q8_0 --nextn 1 --nextn-agrees 0.1
both "deepseek2" "$tmp/ds.gguf" --temp 0.8 --seed 4
model "$tmp/qn.gguf" --arch qwen3next --layers 4 "${small[@]}" "${experts[@]}" --type Q8_0 --nextn 1 --nextn-agrees 0.1
both "qwen3next" "$tmp/qn.gguf" --temp 0
model "$tmp/q.gguf" --arch qwen35 --layers 8 --embd 256 --heads 4 --kv 2 --head-dim 64 --ff 768 --type Q8_0 --nextn 1 \
    --nextn-agrees 0.1
both "qwen35, streamed" "$tmp/q.gguf" --temp 0.6 --seed 5 --ram 16M --ctx 256
more_than bytes_read 1000000
cp "$tmp/plain" "$tmp/streamed"
# the reader dies while drafts are verified
for fault in iod:kill@state=FILLING,nth=60,start=1 iod:kill@state=READY,nth=90,start=1; do
    ntx run "$tmp/q.gguf" "one two three" --raw -n 60 --ignore-eos --quiet --temp 0.6 --seed 5 --ram 16M --ctx 256 \
        --draft nextn --draft-nodes 6 --fault "$fault" >"$tmp/got" || fail "$fault"
    same "$tmp/streamed" "$tmp/got" "$fault"
done
ntx run "$tmp/glm.gguf" "one two three" --raw -n 60 --ignore-eos --quiet --temp 0 --draft off >"$tmp/plain"
ntx run "$tmp/glm.gguf" "one two three" --raw -n 60 --ignore-eos --quiet --temp 0 --draft-nodes 6 \
    --stats "$tmp/s" >"$tmp/got" || fail "auto"
same "$tmp/plain" "$tmp/got" "auto"
grep -q '"nextn": [1-9]' "$tmp/s" || fail "auto does not use the model's own block"
ntx plan "$tmp/glm.gguf" --draft nextn --machine ram=1G,drive=3G --ram 64M >"$tmp/plan" ||
    fail "plan: $(cat "$tmp/plan")"
model "$tmp/none.gguf" --arch llama --layers 2 --type Q8_0
ntx run "$tmp/none.gguf" x --raw -n 4 --quiet --draft nextn >"$tmp/o" 2>"$tmp/e"
[ $? = 111 ] && grep -q "draft nextn.*no next-token block" "$tmp/e" || fail "a model without: $(cat "$tmp/e")"
# Files of other kinds of drafters are refused by name.
here=$(cd "$(dirname "$0")" && pwd)
for kind in gemma4-assistant:Gemma; do
    PYTHONPATH=$here/../../lib python3 -c 'import sys, gguf_edit as e
g = e.Gguf(sys.argv[1])
g.keys[b"general.architecture"] = (e.STR, sys.argv[3])
g.write(sys.argv[2])' "$tmp/none.gguf" "$tmp/kind.gguf" "${kind%:*}" || fail "a file of kind ${kind%:*}"
    ntx run "$tmp/none.gguf" x --raw -n 4 --quiet --draft "$tmp/kind.gguf" >"$tmp/o" 2>"$tmp/e"
    [ $? = 111 ] && grep -q "drafter: it is of the ${kind#*:}.*kind.*Name a small model" "$tmp/e" ||
        fail "a drafter of kind ${kind%:*}: $(cat "$tmp/e")"
done
ntx run "$tmp/glm.gguf" x --raw -n 4 --quiet --draft nextn --ram 3M >"$tmp/o" 2>"$tmp/e"
[ $? = 111 ] && [ "$(wc -l <"$tmp/e")" = 1 ] &&
    grep -q "or --draft off: drafters stay in memory whole and take [0-9.]* [KM]iB of it.*next-token block" "$tmp/e" ||
    fail "too little memory: $(cat "$tmp/e")"
echo ok
