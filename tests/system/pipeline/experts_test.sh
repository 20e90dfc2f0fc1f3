#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The cache of experts: the output is that of a model wholly in RAM, bit for bit, for any budget, rows, threads and
# instruction set, with any evictions and prefetches, and although ntx-iod is killed while it reads experts. The
# statistics have the hits.
. "$(dirname "$0")/../../lib/test.sh"
# Without --long each architecture takes the smallest budget and every second of the other ways, the next one the rest.
every=2
[ -z "${NTX_LONG:-}" ] || every=1
turn=0
ids=1,259,306,337,326,328,514,357,477,421,371,357,508,436,330,300,301,302,303,304
shape="--layers 5 --embd 256 --heads 8 --kv 2 --expert-ff 256 --shared-ff 256"
for arch in "llama --experts 16 --experts-used 2 --type Q8_0" "qwen2moe --experts 24 --experts-used 4 --type Q4_K_M" \
    "qwen3moe --experts 12 --experts-used 12 --type F16" \
    "gpt-oss --experts 16 --experts-used 4 --window 7 --type MXFP4" \
    "gemma4 --head-dim 64 --window-head 32 --full-kv 1 --experts 16 --experts-used 4 --fused --window 7 --type Q8_0" \
    "llama4 --experts 16 --experts-used 2 --expert-every 2 --head-dim 32 --attn-chunk 8 --type Q4_K_M" \
    "glm4moe --experts 16 --experts-used 4 --dense 2 --nextn 1 --rotated 16 --type Q8_0" \
    "qwen35moe --experts 16 --experts-used 4 --nextn 1 --rotated 16 --type Q8_0" \
    "qwen3next --experts 12 --experts-used 3 --type Q4_K_M" \
    "step35 --experts 16 --experts-used 4 --dense 1 --nextn 1 --head-dim 64 --window-heads 6 --window 7 --qk-norms \
        --type Q8_0" \
    "minimax-m2 --experts 16 --experts-used 4 --ff 256 --rotated 16 --type Q4_K_M" \
    "deepseek2 --experts 16 --experts-used 4 --expert-groups 4 --expert-groups-used 2 --dense 1 --nextn 1 \
        --head-dim 96 --rotated 32 --kv-lora 256 --q-lora 128 --sigmoid --type Q8_0" \
    "glm-dsa --experts 16 --experts-used 4 --dense 1 --nextn 1 --head-dim 96 --rotated 32 --kv-lora 256 --q-lora 128 \
        --index-most 5 --index-every 2 --type Q8_0" \
    "hy_v4 --experts 16 --experts-used 4 --dense 1 --head-dim 96 --rotated 32 --kv-lora 256 --q-lora 128 \
        --index-heads 8 --index-most 5 --index-every 2 --type Q8_0" \
    "kimi-linear --experts 16 --experts-used 4 --dense 1 --head-dim 96 --rotated 32 --kv-lora 256 --delta-head 64 \
        --attention-every 2 --type Q8_0" \
    "glm5-next --experts 16 --experts-used 4 --dense 1 --head-dim 96 --kv-lora 256 --q-lora 128 --delta-head 64 \
        --attention-every 2 --index-most 3 --index-pool 3 --nextn 1 --type Q8_0" \
    "qwen4exp --experts 16 --experts-used 4 --head-dim 64 --rotated 32 --delta-head 64 --attention-every 2 \
        --index-most 2 --index-pool 3 --low-rank 32 --gram-layer 3 --gram-heads 4 --gram-entries 5000 --type Q8_0" \
    "deepseek4 --kv 1 --experts 16 --experts-used 4 --hashed 2 --nextn 1 --head-dim 128 --rotated 32 --q-lora 128 \
        --window 16 --index-most 3 --type MXFP4"; do
    # shellcheck disable=SC2086
    model "$tmp/m.gguf" $shape --arch $arch --seed 5
    ntx logits "$tmp/m.gguf" --tokens $ids -o "$tmp/resident" --ram 1G --quiet || fail "resident logits of $arch"
    least=$(ntx logits "$tmp/m.gguf" --tokens $ids -o "$tmp/x" --ram 1M --ctx 64 2>&1 |
        sed -n 's/.*would do is .*(\([0-9]*\) bytes), of which.*/\1/p')
    [ "${least:-0}" -gt 1000000 ] || fail "no smallest budget is named"
    [ "$least" -lt "$(stat -c %s "$tmp/m.gguf")" ] || [ "$arch" != "${arch#qwen3moe}" ] ||
        fail "the smallest budget $least is no less than the model"
    turn=$((turn + 1)) way=$turn
    for options in "--ram $least" "--ram $((least + 700000)) --threads 1" "--ram $((least + 1500000)) --rows 1" \
        "--ram $((least + 3000000))" \
        "--ram $((least + 1000000)) --rows 5 --threads 3 --kernel generic" \
        "--ram $((least + 2000000)) --source pread"; do
        [ "$options" = "--ram $least" ] || [ $(((way = way + 1) % every)) = 0 ] || continue
        # shellcheck disable=SC2086
        ntx logits "$tmp/m.gguf" --tokens $ids -o "$tmp/streamed" --ctx 64 --quiet $options ||
            fail "$arch with $options"
        same "$tmp/resident" "$tmp/streamed" "$arch with $options"
    done
done

# the last is DeepSeek V4: what it does not support is refused with its name
ntx run "$tmp/m.gguf" x --raw -n 1 --kv-type q8_0 2>"$tmp/err" && fail "V4's K in q8_0"
grep -q "K of a deepseek4 model is its V, too, and is kept in f16 only" "$tmp/err" || fail "$(cat "$tmp/err")"

# Layer 0's experts depend on the tokens here, so they are known when a pass begins; those of other layers are predicted
# from the residual stream, to which layers add next to nothing.
model "$tmp/h.gguf" --layers 3 --embd 256 --heads 8 --kv 1 --arch deepseek4 --experts 24 --experts-used 3 --hashed 1 \
    --head-dim 64 --rotated 32 --q-lora 128 --expert-ff 256 --shared-ff 256 --seed 7 --nextn-agrees 0.001
hashed=("$NTX_BIN/ntx" run "$tmp/h.gguf" "Once upon a time there was" --raw --ignore-eos --ctx 64 --quiet -n 16)
"${hashed[@]}" --ram 1G >"$tmp/want" || fail "undisturbed run of hashed experts"
least=$("${hashed[@]}" --ram 1M 2>&1 | sed -n 's/.*would do is .*(\([0-9]*\) bytes), of which.*/\1/p')
for _ in 1 2 3 4 5 6 7 8; do # on a loaded machine the layer may come before ntx-iod begins any of them
    "${hashed[@]}" --ram $((least + 20000000)) --stats "$tmp/s" >"$tmp/got" ||
        fail "hashed experts in $((least + 20000000))"
    same "$tmp/want" "$tmp/got" "hashed experts in $((least + 20000000))"
    [ "$(stat_of "$tmp/s" prefetch_recall)" = 1.0 ] ||
        fail "experts were not all asked for ahead: $(stat_of "$tmp/s" prefetch_recall)"
    [ "$(stat_of "$tmp/s" prefetch_bytes)" = 0 ] || break
done
[ "$(stat_of "$tmp/s" prefetch_bytes)" -gt 0 ] || fail "none of them were read ahead"

# Layers between those with experts add next to nothing, too: the prediction goes across them.
for arch in "jamba --ff 256" "nemotron_h_moe --expert-ff 256 --shared-ff 256"; do
    # shellcheck disable=SC2086
    model "$tmp/g.gguf" --layers 6 --embd 256 --heads 8 --kv 2 --arch $arch --experts 24 --experts-used 3 --seed 8
    gaps=("$NTX_BIN/ntx" run "$tmp/g.gguf" "Once upon a time there was" --raw --ignore-eos --ctx 64 --quiet -n 16)
    "${gaps[@]}" --ram 1G >"$tmp/want" || fail "undisturbed run of $arch"
    least=$("${gaps[@]}" --ram 1M 2>&1 | sed -n 's/.*would do is .*(\([0-9]*\) bytes), of which.*/\1/p')
    "${gaps[@]}" --ram $((least + 8000000)) --stats "$tmp/s" >"$tmp/got" || fail "$arch in $((least + 8000000))"
    same "$tmp/want" "$tmp/got" "$arch in $((least + 8000000))"
    case $(stat_of "$tmp/s" prefetch_recall) in
    0.[1-9]* | 1.0) ;;
    *) fail "no expert of $arch was predicted: $(stat_of "$tmp/s" prefetch_recall)" ;;
    esac
done

model "$tmp/m.gguf" $shape --arch qwen2moe --experts 24 --experts-used 4 --type Q8_0 --seed 6
run=("$NTX_BIN/ntx" run "$tmp/m.gguf" "Once upon a time there was" --raw --ignore-eos --ctx 64 --quiet -n 16)
"${run[@]}" --ram 1G --stats "$tmp/s" >"$tmp/want" || fail "undisturbed run"
[ "$(stat_of "$tmp/s" expert_hit_rate)" = 1.0 ] ||
    fail "expert_hit_rate $(stat_of "$tmp/s" expert_hit_rate) where all are in RAM"
for ram in 10M 14M; do
    "${run[@]}" --ram $ram --stats "$tmp/s" >"$tmp/got" || fail "with $ram"
    same "$tmp/want" "$tmp/got" "with $ram"
    rate=$(stat_of "$tmp/s" expert_hit_rate)
    case $rate in 0.[0-9]*) ;; *) fail "expert_hit_rate is $rate with $ram";; esac
    [ "$(stat_of "$tmp/s" bytes_read)" -gt 1000000 ] || fail "nothing was read with $ram"
    for of in prefetch_recall prefetch_hit_rate; do
        case $(stat_of "$tmp/s" $of) in 0.[0-9]*|1.0) ;; *) fail "$of is $(stat_of "$tmp/s" $of) with $ram";; esac
    done
    [ "$(stat_of "$tmp/s" prefetch_wasted_bytes)" -le "$(stat_of "$tmp/s" prefetch_bytes)" ] ||
        fail "more is wasted than was read"
    "${run[@]}" --ram $ram --prefetch off --stats "$tmp/s" >"$tmp/got" || fail "with $ram, without prefetch"
    same "$tmp/want" "$tmp/got" "with $ram, without prefetch"
    ! grep -q prefetch_recall "$tmp/s" || fail "prefetch is off, and counted"
done
for fault in "iod:kill@state=FILLING,nth=60,start=1" "iod:kill@state=FILLING,nth=400,start=1" \
    "iod:kill@state=READY,nth=90,start=1" \
    "iod:kill@state=READY,nth=700,start=1" "iod:kill@read=500,start=1" \
    "iod:short@every=7" "iod:delay=5ms@every=40" "iod:reorder=8"; do
    timeout $((60 * $(patience))) "${run[@]}" --ram 10M --fault "$fault" >"$tmp/got" 2>"$tmp/err" ||
        fail "$fault: exit $?: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "$fault"
done

RANDOM=${NTX_SEED:-20261121}
kills=0
for ((i = 0; i < ${NTX_KILL_ROUNDS:-6}; i++)); do
    "${run[@]}" --ram 10M --link nvme=60M >"$tmp/got" 2>"$tmp/err" &
    pid=$!
    victim=
    wait_for 5 eval 'victim=$(child $pid ntx-iod)' || fail "no ntx-iod"
    read -rt "$(printf '0.%03d' $((RANDOM % 900)))" <> <(:) || :
    victim=$(child $pid ntx-iod) && kill -9 "$victim" 2>/dev/null && kills=$((kills + 1))
    wait $pid || fail "round $i: exit $?: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "round $i"
done
[ $kills -ge 3 ] || fail "only $kills kills hit"
echo "experts in frames: identical after all faults and $kills kills"
