#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --draft self without a copy: the layers in memory draft. The text is the text without, byte for byte, and takes fewer
# passes: sampled, with K in Q8_0, with a window, a grammar, an adapter, from kept state, with killed readers, and by
# several clients at once. Models whose layers cannot, and budgets that hold too few of them or all, say so.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
models=$(cd "$(dirname "$0")/../../../models" && pwd)
cp "$models/demo.gguf" "$tmp/a.gguf"
prompt="Once upon a time there was a little girl who"
# memory grows with threads, and with it the number of layers that stream
text=(--raw -n 60 --ignore-eos --ctx 256 --rows 32 --threads 2)

# both WHAT MODEL WAY HOW...: compares the text without drafts with that of --draft WAY
both() {
    local what=$1 model=$2 way=$3; shift 3
    ntx run "$model" "$prompt" --quiet --draft off "$@" >"$tmp/plain" || fail "$what: without"
    ntx run "$model" "$prompt" --quiet --draft "$way" --stats "$tmp/s" "$@" >"$tmp/got" 2>"$tmp/err" ||
        fail "$what: $(cat "$tmp/err")"
    same "$tmp/plain" "$tmp/got" "$what"
    hits=$(sed -n 's/.*"layers": \([0-9]*\).*/\1/p' "$tmp/s")
    echo "$what: $(stat_of "$tmp/s" accepted_per_pass) tokens a pass, ${hits:-no} drafts of layers held"
}
# held WHAT MODEL WAY LEAST HOW...: the same, and at least so many held
held() {
    local least=$4
    both "$1" "$2" "$3" "${@:5}"
    [ "${hits:-0}" -ge "$least" ] || fail "$1: ${hits:-no} drafts of layers held, less than $least"
}
held "greedy" "$tmp/a.gguf" self 30 "${text[@]}" --ram 17M --temp 0 --draft-nodes 7
[ "$(stat_of "$tmp/s" draft)" = layers ] || fail "draft is $(stat_of "$tmp/s" draft)"
[ "$(stat_of "$tmp/s" bytes_read)" -gt 20000000 ] || fail "nothing is streamed: $(stat_of "$tmp/s" bytes_read) bytes"
held "as many as pay" "$tmp/a.gguf" self 1 "${text[@]}" --ram 17M --temp 0 --link nvme=150M
held "sampled, with look-up" "$tmp/a.gguf" lookup,self 10 "${text[@]}" --ram 17M --temp 0.8 --seed 4 --draft-nodes 7
[ "$(stat_of "$tmp/s" draft)" = lookup+layers ] || fail "draft is $(stat_of "$tmp/s" draft)"
held "q8_0" "$tmp/a.gguf" self 20 "${text[@]}" --ram 16M --temp 0.5 --seed 7 --kv-type q8_0 --draft-nodes 7
held "with a penalty" "$tmp/a.gguf" self 5 "${text[@]}" --ram 17M --temp 0.7 --seed 3 --repeat-penalty 1.1 \
    --draft-nodes 7
printf %s '{"type": "object", "additionalProperties": false, "required": ["name"], "properties": {' \
    '"name": {"type": "string", "maxLength": 12}}}' >"$tmp/schema"
held "masks" "$tmp/a.gguf" self 1 --ctx 256 --rows 32 --threads 2 --ram 17M --json-schema "$tmp/schema" --temp 1 \
    --seed 2 -n 60 --draft-nodes 7

# Sliding windows smaller than the text; two files.
model "$tmp/w.gguf" --arch gemma3 --layers 12 --embd 256 --ff 1024 --heads 4 --kv 2 --head-dim 64 --window 40 \
    --type Q8_0 --ctx 512
wide=(--raw -n 90 --ignore-eos --ctx 512 --rows 16 --threads 2 --ram 14M --draft-nodes 5)
held "windows" "$tmp/w.gguf" self 1 "${wide[@]}" --temp 0
both "windows, sampled" "$tmp/w.gguf" self "${wide[@]}" --temp 0.9 --seed 5

# An adapter is added in the layers that draft, too.
shape=(--layers 12 --embd 256 --ff 1024 --heads 8 --kv 2 --type Q8_0)
model "$tmp/m.gguf" "${shape[@]}" --seed 3
model "$tmp/tuned.gguf" "${shape[@]}" --seed 4
ntx pack "$tmp/tuned.gguf" "$tmp/lora.gguf" --delta --base "$tmp/m.gguf" --rank 4 --force --quiet || fail "an adapter"
held "an adapter" "$tmp/m.gguf" self 1 "${text[@]}" --ram 17M --temp 0 --draft-nodes 7 --lora "$tmp/lora.gguf"

# The reader dies while drafts are verified.
ntx run "$tmp/a.gguf" "$prompt" --quiet --draft off "${text[@]}" --ram 17M --temp 0.8 --seed 6 >"$tmp/plain"
for fault in iod:kill@state=FILLING,nth=40,start=1 iod:kill@state=READY,nth=60,start=1; do
    ntx run "$tmp/a.gguf" "$prompt" --quiet "${text[@]}" --ram 17M --temp 0.8 --seed 6 --draft self --draft-nodes 7 \
        --fault "$fault" >"$tmp/got" || fail "$fault"
    same "$tmp/plain" "$tmp/got" "$fault"
done

# From state that another process kept, which also wrote with drafts.
for i in 1 2; do
    ntx run "$tmp/a.gguf" "$(words 300)" --quiet --draft self --draft-nodes 7 "${text[@]}" --ram 17M --temp 0 \
        --state "$tmp/kept" --stats "$tmp/s" >"$tmp/kept.$i" || fail "with --state"
done
[ "$(stat_of "$tmp/s" cached_tokens)" -gt 20 ] || fail "cached tokens: $(stat_of "$tmp/s" cached_tokens)"
ntx run "$tmp/a.gguf" "$(words 300)" --quiet --draft off "${text[@]}" --ram 17M --temp 0 >"$tmp/plain"
same "$tmp/plain" "$tmp/kept.1" "keeping state"
same "$tmp/plain" "$tmp/kept.2" "from kept state"

# Several clients in one pass.
export NTX_RUNTIME=$tmp/rt
generate() {
    ntx generate "$prompt" --raw -n 60 --ignore-eos --quiet --temp "0.$((2 * $1))" --seed 5 --stats "$tmp/s.$2.$1" \
        >"$tmp/$2.$1"
}
for way in off self; do
    rm -f "$tmp/up.log" # else the one before says that it is ready
    "$NTX_BIN/ntx" up "$tmp/a.gguf" --ctx 256 --rows 32 --threads 2 --sessions 3 --ram 20M --draft "$way" \
        --draft-nodes 5 2>"$tmp/up.log" &
    up=$!
    cleanup+=("kill -9 $up 2>/dev/null")
    wait_for 20 grep -q 'ready' "$tmp/up.log" || fail "not ready: $(cat "$tmp/up.log")"
    pids=()
    for i in 0 1 2; do generate $i $way & pids+=($!); done
    for p in "${pids[@]}"; do wait "$p" || fail "a client of three failed, --draft $way"; done
    for i in 0 1 2; do same "$tmp/off.$i" "$tmp/$way.$i" "client $i, --draft $way"; done
    kill $up
    wait $up || fail "ntx up ended with $?"
done
grep -q '"layers": [1-9]' "$tmp"/s.self.* || fail "no drafts of layers held with three clients"
unset NTX_RUNTIME

# says WHY MODEL HOW...: a load that is refused by one line
says() {
    local why=$1 model=$2; shift 2
    "$NTX_BIN/ntx" run "$model" x --raw -n 1 --quiet --draft self "$@" >"$tmp/out" 2>"$tmp/err" && fail "$why: it runs"
    [ "$(wc -l <"$tmp/err")" = 1 ] &&
        grep -q "^ntx: --draft self: there is no copy.*cannot draft: .*$why.*ntx quantize" "$tmp/err" ||
        fail "$why: $(cat "$tmp/err")"
}
says "experts" "$models/demo-moe.gguf"
ntx quantize "$models/demo.gguf" "$tmp/q4.gguf" Q4_0 --quiet || fail "quantize"
head -c 100000 "$tmp/q4.gguf" >"$tmp/cut.gguf"
"$NTX_BIN/ntx" run "$tmp/a.gguf" x -n 1 --quiet --draft "self,$tmp/cut.gguf" 2>"$tmp/err" &&
    fail "a drafter that is cut off"
grep -q "^ntx: --draft $tmp/cut.gguf: " "$tmp/err" || fail "which drafter is cut off: $(cat "$tmp/err")"
model "$tmp/q.gguf" --arch qwen35 --layers 8 --embd 256 --heads 4 --kv 2 --head-dim 64 --ff 768 --type Q8_0
says "recurrent state" "$tmp/q.gguf"
says "skip" "$tmp/a.gguf" --skip script:3-4@0
says "kv-ram" "$tmp/a.gguf" --kv-ram 4M --state "$tmp/kept"
# warns WHAT RAM: a load that goes on without, and says so
warns() {
    ntx run "$tmp/a.gguf" "$prompt" -v "${text[@]}" --temp 0 --draft self --ram "$2" >"$tmp/got" 2>"$tmp/err" ||
        fail "$1: $(cat "$tmp/err")"
    grep -q "draft self: $1.*the text itself drafts instead" "$tmp/err" || fail "$1: $(cat "$tmp/err")"
}
warns "all of the model is in memory" 60M
warns "fewer than a third of the layers are in memory" 13M

# auto uses them where a profile says that it pays: a slow drive, beside a fast processor; not with a fast drive, nor
# without a profile. `ntx plan` says the same.
# by_auto DRIVE_GB_S: tokens by auto with such a profile, and the plan
by_auto() {
    mkdir -p "$tmp/auto.$1/ntx"
    printf '{"ntx_profile": 1, "source": "measured", "cpu": {"threads": 2}, "ram": {"gb_s": 20, "gb_s_1": 10},
        "drive": {"reads": [{"bytes": 4096, "gb_s": %s}, {"bytes": 1048576, "gb_s": %s}]}, "kernels": [%s]}' "$1" "$1" \
        "$(for t in F32 F16 Q4_0 Q4_1 Q5_0 Q8_0 Q4_K Q5_K Q6_K; do
            printf '{"type": "%s", "rows": 1, "gb_s": 20, "gb_s_1": 10}, ' $t
            printf '{"type": "%s", "rows": 8, "gb_s": 20, "gb_s_1": 10}, ' $t
        done | sed 's/, $//')" >"$tmp/auto.$1/ntx/profile.json"
    XDG_CACHE_HOME=$tmp/auto.$1 ntx run "$tmp/a.gguf" "$prompt" --quiet "${text[@]}" --temp 0.8 --seed 4 --ram 17M \
        --stats "$tmp/s" >"$tmp/got" || fail "auto, a drive of $1 GB/s"
    XDG_CACHE_HOME=$tmp/auto.$1 ntx plan "$tmp/a.gguf" --ctx 256 --rows 32 --threads 2 --ram 17M >"$tmp/plan" ||
        fail "plan, a drive of $1 GB/s"
    ntx run "$tmp/a.gguf" "$prompt" --quiet "${text[@]}" --temp 0.8 --seed 4 --ram 17M --draft off >"$tmp/plain"
    same "$tmp/plain" "$tmp/got" "auto, a drive of $1 GB/s"
}
by_auto 0.1
grep -q '"layers": [0-9]' "$tmp/s" || fail "auto does not use the layers: $(grep draft "$tmp/s")"
grep -q 'layers in memory draft (--draft self): [0-9]* of 12, without the [0-9]* that stream' "$tmp/plan" ||
    fail "the plan: $(cat "$tmp/plan")"
by_auto 50
grep -q '"layers"' "$tmp/s" && fail "auto uses the layers beside a fast drive"
grep -q 'layers in memory draft' "$tmp/plan" && fail "so does the plan: $(cat "$tmp/plan")"
echo ok
