#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --ffn-sparse through the daemons: a threshold of zero gives the bits of the packed model with all its neurons, and
# each mode the same bits resident and read on demand, with any budget, threads, rows and source. Only used groups are
# read.
. "$(dirname "$0")/../../lib/test.sh"
ids=1,259,306,337,326,328,514,357,477,421,371,357,508,436,330,300,301,302,303,304
model "$tmp/relu.gguf" --arch llama-relu --layers 6 --embd 512 --ff 3072 --heads 8 --kv 2 --type Q8_0 --seed 7
model "$tmp/silu.gguf" --layers 6 --embd 512 --ff 3072 --heads 8 --kv 2 --type Q4_K_M --seed 8
for m in relu silu; do
    ntx pack "$tmp/$m.gguf" "$tmp/p.gguf" --group 8K --force --quiet || fail "pack $m"
    for mode in threshold=0 topk=0.1; do
        ntx logits "$tmp/p.gguf" --tokens $ids -o "$tmp/resident" --ram 1G --ffn-sparse $mode ||
            fail "$m resident with $mode"
        if [ $mode = threshold=0 ]; then
            ntx logits "$tmp/p.gguf" --tokens $ids -o "$tmp/off" --ram 1G || fail "$m with all neurons"
            same "$tmp/off" "$tmp/resident" "$m with $mode"
        fi
        for options in "--ram 14M --ctx 64" "--ram 17M --ctx 64 --threads 1 --rows 1" \
            "--ram 24M --ctx 64 --rows 3 --threads 3" "--ram 17M --ctx 64 --chunk 100K" \
            "--ram 17M --ctx 64 --kernel generic --source pread --rows 1"; do
            # shellcheck disable=SC2086
            ntx logits "$tmp/p.gguf" --tokens $ids -o "$tmp/streamed" --ffn-sparse $mode $options ||
                fail "$m with $mode $options"
            same "$tmp/resident" "$tmp/streamed" "$m with $mode $options"
        done
    done
done
# Bytes read: the share of used groups, and what is between them; nothing else, since the rest is resident. Down
# matrices in columns make small groups.
ntx pack "$tmp/silu.gguf" "$tmp/p.gguf" --group 8K --down-type Q8_0 --force --quiet || fail "pack in columns"
run() {
    ntx run "$tmp/p.gguf" "Once upon a time" --raw -n 24 --ignore-eos --ctx 64 \
        --quiet --stats "$tmp/s" "$@" >"$tmp/text" || fail "run $*"
}
run --ram 1G --ffn-sparse topk=0.05 && cp "$tmp/text" "$tmp/want"
for options in "--ram 14M" "--ram 14M --prefetch off" "--ram 20M --prefetch off" "--ram 20M"; do
    # shellcheck disable=SC2086
    run $options --ffn-sparse topk=0.05
    same "$tmp/want" "$tmp/text" "text with topk=0.05 $options"
done
grep -q '"ffn_sparse:topk=0.05"' "$tmp/s" || fail "a lossy mode is not named"
python3 - "$tmp/s" "$tmp/p.gguf" <<'P' || exit 1
import json, sys
s = json.load(open(sys.argv[1]))
assert abs(s['active_neurons'] - 0.05) < 0.001, s['active_neurons']
better = s['ffn_recall'] > s['active_groups'] and s['ffn_precision'] > s['active_groups']
assert better, 'a prediction no better than chance: %r' % s
assert 0.1 < s['active_groups'] < 0.9 and s['bytes_read_per_token'] > 0, s
print('precision %.3f, recall %.3f' % (s['ffn_precision'], s['ffn_recall']))
print('active neurons %.3f, groups %.3f, read per token %.0f, of those between %.0f'
      % (s['active_neurons'], s['active_groups'], s['bytes_read_per_token'], s['ffn_bytes_between_per_token']))
P
# A window for the next layer's groups exists only if they are prefetched, in a ring with known groups.
least() {
    ntx run "$tmp/p.gguf" x --quiet --ctx 64 --ram 1M --ffn-sparse "$@" 2>&1 | grep -o "([0-9]* bytes)" |
        head -n 1 | tr -dc 0-9
}
one=$(least topk=0.05) none=$(least topk=0.05 --prefetch off) two=$(least predicted=0.5,gate) \
    known=$(least predicted=0.5,gate --prefetch off)
[ -n "$one" ] && [ "$one" = "$none" ] || fail "the smallest budget with topk is $one, without prefetching $none"
[ $((two - known)) -ge 2000000 ] ||
    fail "the smallest budget with groups known ahead is $two, without prefetching $known"
# Refusals.
for bad in "--ffn-sparse threshold=-1" "--ffn-sparse much"; do
    # shellcheck disable=SC2086
    ntx run "$tmp/p.gguf" x --quiet $bad 2>"$tmp/e" && fail "$bad was taken"
    grep -q "there are off, threshold=T" "$tmp/e" || fail "$(cat "$tmp/e")"
done
ntx run "$tmp/silu.gguf" x --quiet --ffn-sparse topk=0.5 2>"$tmp/e" && fail "an unpacked model"
grep -q "ntx pack" "$tmp/e" || fail "$(cat "$tmp/e")"
# Killing ntx-iod at any time changes no bit.
for fault in "iod:kill@state=FILLING,nth=60,start=1" "iod:kill@state=FILLING,nth=400,start=1" \
    "iod:kill@state=READY,nth=90,start=1"; do
    run --ram 14M --ffn-sparse topk=0.05 --fault "$fault"
    same "$tmp/want" "$tmp/text" "$fault"
done
echo "sparse FFNs read on demand equal resident ones"
