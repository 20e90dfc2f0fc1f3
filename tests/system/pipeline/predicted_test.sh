#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --ffn-sparse predicted and prompt through the daemons: the result of calibrate --ffn does not depend on threads or
# budget; a text is the same resident and read on demand, prefetched or not; only the predicted groups are read; and
# pack --order moves neurons without a change of results.
. "$(dirname "$0")/../../lib/test.sh"
m=$tmp/m.gguf
model "$m" --layers 6 --embd 256 --ff 3072 --heads 8 --kv 2 --type Q8_0 --seed 8 --ctx 256
for i in $(seq 1 70); \
    do echo "the $i th fox of $((i * 7919 % 977)) ran over $((i * 31 % 57)) lazy dogs, and none of them saw it."; \
    done >"$tmp/text"
ntx pack "$m" "$tmp/p.gguf" --group 8K --force --quiet || fail "pack"
ntx pack "$m" "$tmp/g.gguf" --group 8K --gate-in-bundle --force --quiet || fail "pack, gate in the bundle"
cal=(--text "$tmp/text" --ffn --ctx 128 --epochs 2 --limit 1200 --ffn-rank 16 --ffn-recall 0.7 --threshold 0.9 --quiet)
for f in p g; do
    ntx calibrate "$tmp/$f.gguf" "${cal[@]}" -o "$tmp/$f.skip.gguf" --json >"$tmp/cal.json" || fail "calibrate $f"
    grep -q '"precision"' "$tmp/cal.json" && grep -q '"ffn"' "$tmp/cal.json" ||
        fail "calibrate --json: $(cat "$tmp/cal.json")"
done
ntx calibrate "$tmp/g.gguf" "${cal[@]}" -o "$tmp/again" --threads 3 --ram 12M || fail "calibrate, streamed"
cmp -s "$tmp/g.skip.gguf" "$tmp/again" || fail "two and three threads, resident and streamed: the sidecars differ"

run() { # MODEL ARGUMENTS...
    local f=$1; shift
    ntx run "$f" "Once upon a time" --raw -n 20 --ignore-eos --ctx 64 --quiet --stats "$tmp/s" "$@" >"$tmp/text.out" ||
        fail "run $f $*"
}
check() { # FILE MODE
    run "$tmp/$1.gguf" --ram 1G --ffn-sparse "$2" && cp "$tmp/text.out" "$tmp/want"
    grep -q "\"ffn_sparse:$2\"" "$tmp/s" || fail "$1 with $2: a lossy mode is not named"
    for options in "--ram 12M --chunk 100K --rows 3 --threads 3" "--ram 10M --prefetch off --threads 1 --source pread" \
        "--ram 10M"; do
        # shellcheck disable=SC2086
        run "$tmp/$1.gguf" $options --ffn-sparse "$2"
        same "$tmp/want" "$tmp/text.out" "$1 with $2 $options"
    done
    [ "$(stat_of "$tmp/s" bytes_storage)" -gt 0 ] || fail "10M hold all of a larger model"
}
for mode in predicted=0.3 predicted=0.3,learned prompt=0.3; do check p $mode; done
for mode in predicted=0.3 prompt=0.3 predicted; do check g $mode; done

# Only used groups are read; without a profile nothing between them. The rest is a block for each token's row of the
# embedding.
export XDG_CACHE_HOME=$tmp
run "$tmp/g.gguf" --ram 10M --prefetch on --ffn-sparse predicted=0.3
python3 - "$tmp/s" <<'P' || exit 1
import json, sys
s = json.load(open(sys.argv[1]))
assert 0.3 <= s['active_groups'] < 0.32 and abs(s['active_neurons'] - s['active_groups']) < 0.01, s
# recall: layer 0 is not prefetched
assert s['ffn_precision'] == 1 and s['ffn_recall'] > 0.7, 'predicted groups are not those that are used: %r' % s
print('read per token %.0f of %.0f not in RAM, groups %.3f'
      % (s['bytes_read_per_token'], s['bytes_storage'], s['active_groups']))
P
# Only for generated tokens: perplexity feeds them one by one, and with all groups the result is that of the model
# itself.
nll() { ntx perplexity "$@" --ctx 64 --json --quiet | sed 's/.*"nll":\([^,]*\).*/\1/'; }
head -c 600 "$tmp/text" >"$tmp/short"
[ "$(nll "$tmp/p.gguf" "$tmp/short")" = "$(nll "$tmp/p.gguf" "$tmp/short" --ffn-sparse predicted=1)" ] ||
    fail "all groups, and another likelihood"
[ "$(nll "$tmp/p.gguf" "$tmp/short")" != "$(nll "$tmp/p.gguf" "$tmp/short" --ffn-sparse predicted=0.3)" ] ||
    fail "perplexity leaves nothing out"
# Killing ntx-iod changes no bit.
run "$tmp/g.gguf" --ram 1G --ffn-sparse predicted=0.3 && cp "$tmp/text.out" "$tmp/want"
for fault in "iod:kill@state=FILLING,nth=60,start=1" "iod:kill@state=READY,nth=90,start=1"; do
    run "$tmp/g.gguf" --ram 10M --ffn-sparse predicted=0.3 --fault "$fault"
    same "$tmp/want" "$tmp/text.out" "$fault"
done
# Reordered neurons, of a float model, where only the order of sums can differ.
model "$tmp/f.gguf" --layers 3 --embd 256 --ff 512 --heads 8 --kv 2 --type F32 --seed 9 --ctx 256
ntx calibrate "$tmp/f.gguf" "${cal[@]}" -o "$tmp/order" --json >"$tmp/cal.json" || fail "calibrate what is not packed"
grep -q '"groups_after"' "$tmp/cal.json" || fail "calibrate --json: $(cat "$tmp/cal.json")"
ntx pack "$tmp/f.gguf" "$tmp/o.gguf" --group 8K --order "$tmp/order" --force --quiet || fail "pack --order"
ntx pack "$tmp/f.gguf" "$tmp/q.gguf" --group 8K --force --quiet || fail "pack"
cmp -s "$tmp/o.gguf" "$tmp/q.gguf" && fail "an order that changes nothing"
for mode in off threshold=0; do ntx logits "$tmp/o.gguf" --tokens 1,259,306,337 -o "$tmp/$mode" --ffn-sparse $mode \
    --ctx 64 || fail "logits with $mode"; done
same "$tmp/off" "$tmp/threshold=0" "the ordered model with threshold=0"
ntx logits "$tmp/q.gguf" --tokens 1,259,306,337 -o "$tmp/c" --ctx 64 || fail "logits"
python3 - "$tmp/off" "$tmp/c" <<'P' || fail "neurons in another order compute something else"
import array, sys
a, b = (array.array('f', open(f, 'rb').read()) for f in sys.argv[1:])
most = max(abs(x - y) for x, y in zip(a, b))
assert len(a) == len(b) and 0 < most < 1e-3 * max(map(abs, b)), most
P
# Refusals.
says() { # TEXT COMMAND...
    local text=$1; shift
    "$@" >"$tmp/out" 2>"$tmp/err" && fail "$*: succeeded"
    grep -q -- "$text" "$tmp/err" && [ "$(wc -l <"$tmp/err")" = 1 ] || fail "$*: $(cat "$tmp/err")"
}
says "belongs to another model" ntx run "$tmp/p.gguf" x -n 1 --quiet --ffn-sparse predicted --sidecar "$tmp/g.skip.gguf"
says "ntx pack" ntx run "$m" x -n 1 --quiet --ffn-sparse predicted --sidecar "$tmp/order"
says "needs a sidecar" ntx run "$tmp/o.gguf" x -n 1 --quiet --ffn-sparse predicted
says "without --gate-in-bundle" ntx run "$tmp/g.gguf" x -n 1 --quiet --ffn-sparse predicted=0.3,gate \
    --sidecar "$tmp/g.skip.gguf"
says "belongs to another model" ntx pack "$m" "$tmp/x.gguf" --order "$tmp/order" --force --quiet
ntx calibrate "$tmp/f.gguf" --text "$tmp/text" --ctx 128 --epochs 1 --limit 600 --threshold 0.9 \
    -o "$tmp/nothing" --quiet ||
    fail "calibrate"
says "calibrate --ffn" ntx pack "$tmp/f.gguf" "$tmp/x.gguf" --order "$tmp/nothing" --quiet
echo "groups of neurons that are predicted, and those that a prompt chooses"
