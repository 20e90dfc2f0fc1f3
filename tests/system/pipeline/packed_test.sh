#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A packed model runs like any other: resident and streamed, threads, rows, chunks, sources and instruction sets give
# the same bits, and the text of the model that it was packed from where packing rounds nothing.
. "$(dirname "$0")/../../lib/test.sh"
models=$(dirname "$0")/../../../models
ids=1,259,306,337,326,328,514,357,477,421,371,357,508,436,330,300,301,302,303,304
for type in Q4_K_M F16; do
    model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type $type --seed 7
    for gate in "" --gate-in-bundle; do
        # shellcheck disable=SC2086
        ntx pack "$tmp/m.gguf" "$tmp/p.gguf" --group 24K $gate --force --quiet --json >"$tmp/report" ||
            fail "pack $type $gate"
        grep -q '"down_error":' "$tmp/report" || fail "no error in $(cat "$tmp/report")"
        ntx logits "$tmp/p.gguf" --tokens $ids -o "$tmp/resident" --ram 1G || fail "resident logits of packed $type"
        [ -z "$gate" ] || same "$tmp/resident" "$tmp/other" "packed $type with the gate in the bundle"
        cp "$tmp/resident" "$tmp/other"
        for options in "--ram 14M --ctx 64" "--ram 16M --ctx 64 --threads 1" "--ram 15M --ctx 64 --rows 1" \
            "--ram 16M --ctx 64 --rows 3 --threads 3" \
            "--ram 16M --ctx 64 --chunk 100K" "--ram 1G --rows 1" \
            "--ram 16M --ctx 64 --kernel generic --source pread"; do
            # shellcheck disable=SC2086
            ntx logits "$tmp/p.gguf" --tokens $ids -o "$tmp/streamed" $options ||
                fail "packed $type $gate with $options"
            same "$tmp/resident" "$tmp/streamed" "packed $type $gate with $options"
        done
    done
done
ntx run "$tmp/m.gguf" "Once upon a time" --raw -n 16 --ignore-eos --quiet >"$tmp/t1" || fail "the model itself"
ntx run "$tmp/p.gguf" "Once upon a time" --raw -n 16 --ignore-eos --quiet --ram 16M --ctx 64 \
    --stats "$tmp/s" >"$tmp/t2" || fail "packed F16"
same "$tmp/t1" "$tmp/t2" "text of an F16 model, which packing does not round,"
[ "$(stat_of "$tmp/s" bytes_storage)" -gt 0 ] || fail "16M hold all of a larger model"
grep -q '"down_error":0.0,' "$tmp/report" || fail "F16 columns were rounded: $(cat "$tmp/report")"
# Refusals.
ntx pack "$tmp/p.gguf" "$tmp/q.gguf" 2>"$tmp/e" && fail "a packed model was packed"
grep -q "packed already" "$tmp/e" || fail "$(cat "$tmp/e")"
ntx pack "$tmp/m.gguf" "$tmp/m.gguf" 2>"$tmp/e" && fail "a model was packed onto itself"
ntx pack "$tmp/m.gguf" "$tmp/q.gguf" --down-type I8 2>"$tmp/e" && fail "packed into bytes"
[ ! -e "$tmp/q.gguf" ] || fail "half a file was left behind"
# Packed from a higher precision: less error than from the model's own type.
model "$tmp/q4.gguf" --layers 2 --embd 256 --ff 512 --heads 4 --kv 2 --type Q4_K --seed 3
model "$tmp/f16.gguf" --layers 2 --embd 256 --ff 512 --heads 4 --kv 2 --type F16 --seed 4
ntx pack "$tmp/q4.gguf" "$tmp/p.gguf" --from "$tmp/f16.gguf" --down-type F16 --force --quiet --json >"$tmp/report" ||
    fail "--from"
grep -q '"down_error":0.0,' "$tmp/report" || fail "F16 from F16: $(cat "$tmp/report")"
ntx pack "$tmp/q4.gguf" "$tmp/p.gguf" --from "$tmp/m.gguf" 2>"$tmp/e" && fail "--from another model"
grep -q "another one" "$tmp/e" || fail "$(cat "$tmp/e")"
# Blocks along the neurons are kept: the groups have the original's bytes of up and down, in another order.
for type in Q4_0 Q6_K; do
    model "$tmp/b.gguf" --layers 2 --embd 256 --ff 768 --heads 4 --kv 2 --type $type --seed 3
    ntx pack "$tmp/b.gguf" "$tmp/p.gguf" --group 20K --force --quiet --json >"$tmp/report" || fail "pack $type"
    grep -q '"down_error":0.0,.*"down_rows":true' "$tmp/report" || fail "$type was rounded: $(cat "$tmp/report")"
    PYTHONPATH=$(dirname "$0")/../../lib python3 - "$tmp/b.gguf" "$tmp/p.gguf" <<'P' || fail "$type: other bytes"
import sys
from gguf_edit import BLOCK, Gguf

plain, packed = Gguf(sys.argv[1]), Gguf(sys.argv[2])
kind = plain.tensors[b"blk.1.ffn_down.weight"][1]
values, size = BLOCK[kind]
group = packed.keys[b"ntx.pack.group"][1][1][1]
assert packed.keys[b"ntx.pack.down_type"][1][1][1] == kind and group % values == 0 and 768 % group == 0, group
up, down = (plain.tensors[b"blk.1.ffn_%s.weight" % n][2] for n in (b"up", b"down"))
row_up, row_down, cut = 256 // values * size, 768 // values * size, group // values * size
(group_bytes, n), _, data = packed.tensors[b"blk.1.ntx_ffn.weight"]
assert n == 768 // group
for g in range(n):
    at = g * group_bytes
    want = up[g * group * row_up : (g + 1) * group * row_up]
    for o in range(256):
        want += down[o * row_down + g * cut : o * row_down + (g + 1) * cut]
    assert data[at : at + len(want)] == want and not any(data[at + len(want) : at + group_bytes]), g
P
done
ntx pack "$tmp/b.gguf" "$tmp/o.gguf" --down-type Q8_0 --force --quiet --json >"$tmp/report" || fail "--down-type"
grep -q '"down_error":0.00[0-9]*,.*"down_rows":false' "$tmp/report" || fail "--down-type: $(cat "$tmp/report")"
# Where a token touches every group nothing is written; where it does not, the shares are printed first.
ntx pack "$tmp/b.gguf" "$tmp/n.gguf" >"$tmp/out" 2>"$tmp/e" && fail "a model was packed for nothing"
grep -q "^threshold=0 *1.000" "$tmp/out" && grep -q "nothing was written.*--force" "$tmp/e" && [ ! -e "$tmp/n.gguf" ] ||
    fail "refusal: $(cat "$tmp/out" "$tmp/e")"
ntx pack "$models/demo-relu.gguf" "$tmp/n.gguf" --group 4K >"$tmp/out" 2>"$tmp/e" || fail "ReLU: $(cat "$tmp/e")"
grep -q "^threshold=0 *0\.[3-8]" "$tmp/out" && grep -q "no weight was changed" "$tmp/out" && [ -s "$tmp/n.gguf" ] ||
    fail "ReLU: $(cat "$tmp/out")"
echo "packed models run streamed as resident"
