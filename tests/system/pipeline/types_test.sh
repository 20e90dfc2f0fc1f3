#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Each quantised type, at each place of weights: the same logits resident and streamed, with each instruction set, with
# few rows and with many, with experts, in packed FFNs, and beside other types; rows of any multiple of a type's block;
# and `ntx plan` knows it.
. "$(dirname "$0")/../../lib/test.sh"
ids=1,259,306,337,326,328,514,357,477,421,371,357,508,436,330,300,301,302,303,304
kernels=generic
for k in avx2:avx2 avx512:avx512_vnni neon:asimddp i8mm:i8mm; do # what Linux calls it
    ! grep -qw "${k#*:}" /proc/cpuinfo || kernels+=" ${k%:*}"
done

# everywhere OPTIONS...: a model with these options, with weights at every place
everywhere() {
    model "$tmp/m.gguf" "$@"
    ntx logits "$tmp/m.gguf" --tokens $ids -o "$tmp/resident" --ctx 64 --ram 1G 2>"$tmp/e" || fail "$*: $(cat "$tmp/e")"
    local way
    least=$(ntx logits "$tmp/m.gguf" --tokens 1 -o "$tmp/other" --ctx 64 --ram 100K 2>&1 |
        sed -n 's/.*that would do is [^(]*(\([0-9]*\) bytes).*/\1/p')
    least=$((${least:-0} + 500000))
    ntx run "$tmp/m.gguf" Once --raw -n 1 --ctx 64 --ram $least --quiet --stats "$tmp/s" >"$tmp/e" ||
        fail "$* in $least"
    [ "$(stat_of "$tmp/s" bytes_storage)" -gt 300000 ] || fail "$*: $least bytes hold all of it"
    for way in "--rows 1 --ram 1G" "--threads 3 --rows 7 --ram 1G" "--least" "--least --rows 1 --threads 1" \
        "--least --chunk 40K --rows 3 --source pread"; do
        # shellcheck disable=SC2086
        ntx logits "$tmp/m.gguf" --tokens $ids -o "$tmp/other" --ctx 64 ${way/--least/--ram $least} 2>"$tmp/e" ||
            fail "$* with $way: $(cat "$tmp/e")"
        same "$tmp/resident" "$tmp/other" "$* with $way"
    done
    for way in $kernels; do
        ntx logits "$tmp/m.gguf" --tokens $ids -o "$tmp/other" --ctx 64 --ram 1G --kernel "$way" 2>"$tmp/e" ||
            fail "$* by $way: $(cat "$tmp/e")"
        same "$tmp/resident" "$tmp/other" "$* by $way: $(cat "$tmp/e")"
    done
    ntx plan "$tmp/m.gguf" --machine ram=8G,memory=ddr4,cores=4,drive=2G --ram $least --ctx 64 >"$tmp/plan" 2>&1 ||
        fail "plan of $*: $(cat "$tmp/plan")"
}

# odd TYPE [BLOCK]: rows of any number of blocks, here the least that are no multiples of 256: dense, and experts in the
# cache
odd() {
    local row=$((9 * ${2:-32}))
    everywhere --layers 9 --embd $row --ff $((row + ${2:-32} * 4)) --heads 3 --kv 1 --head-dim 96 --type "$1" --seed 7
    everywhere --layers 9 --embd $row --ff $row --heads 3 --kv 1 --head-dim 96 --experts 12 --experts-used 3 \
        --expert-ff $((${2:-32} * 5)) --type "$1" --seed 8
}

odd IQ4_NL
[ -n "${NTX_LONG:-}" ] ||
    { echo "rows of any multiple of 32 are the same everywhere"; skip \
    "long: all types at 9 places (NTX_LONG=1 runs them)"; }
for type in ${NTX_ODD:-Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 MXFP4}; do
    odd $type
done
for type in NVFP4:64 Q2_0:64 Q1_0:128; do
    odd ${type%:*} ${type#*:}
done
for type \
    in \
    ${NTX_TYPES:-F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS IQ3_XXS IQ3_S IQ2_XXS \
        IQ2_XS IQ2_S IQ1_S IQ1_M TQ1_0 TQ2_0 MXFP4 NVFP4 NVFP4_ALL Q1_0 Q2_0}; do
    everywhere --layers 9 --embd 512 --ff 768 --heads 4 --kv 2 --type $type --seed 5
    ntx pack "$tmp/m.gguf" "$tmp/p.gguf" --group 24K --force --quiet >"$tmp/e" 2>&1 ||
        fail "pack $type: $(cat "$tmp/e")"
    ntx logits "$tmp/p.gguf" --tokens $ids -o "$tmp/resident" --ctx 64 --ram 1G || fail "packed $type"
    ntx logits "$tmp/p.gguf" --tokens $ids -o "$tmp/other" --ram $((least + 600000)) --ctx 64 ||
        fail "packed $type, streamed"
    same "$tmp/resident" "$tmp/other" "packed $type"
    everywhere --layers 9 --embd 256 --ff 256 --heads 4 --kv 2 --experts 12 --experts-used 3 --expert-ff 256 \
        --type $type --seed 6
    echo "$type"
done
echo "types are the same everywhere"
