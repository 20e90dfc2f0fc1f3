#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# table.sh LLAMA_CPP [TYPE...]: cycles of products of rows of 4096 weights of these types (all), by llvm-mca's models,
# ntx / llama.cpp, whose source lies in LLAMA_CPP. Compiled here for 64-bit Arm and traced by qemu-user (cycles.py). One
# row of x by one of weights; then four of x by 8 of weights, with i8mm and by dot products alone, and what another 8
# add; there llama.cpp's weights are re-packed where it does that. Last, of the types that ntx interleaves in memory,
# what 8 more outputs take so, one row of x and four, beside re-packed ones. With i8mm ntx interleaves x in each call,
# llama.cpp as it quantises x, which is not part of this. SVE: llama.cpp's as it is built for SVE2 with vectors of 128
# bits. LLVM_MCA names llvm-mca, of LLVM 19 or later.
set -eu
cd "$(dirname "$(realpath "$0")")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
ggml=$(realpath "$1")/ggml/src
shift
cc=(aarch64-linux-gnu-gcc -O3 -ffp-contract=off -std=gnu17 -D_GNU_SOURCE -Wno-psabi)
base=armv8.2-a+dotprod
for f in generic neon:$base neon_simple:$base neon_super:$base neon_many:$base neon_many_super:$base \
    neon_interleaved:$base neon_interleaved_super:$base i8mm:$base+i8mm pick; do
    march=${f#*:}
    [ "$march" = "$f" ] && march=armv8-a
    flags=-fno-var-tracking
    case ${f%%:*} in # as computed/cpu/CMakeLists.txt has it
    i8mm | *_super) [ "${f%%:*}" = neon_super ] || flags+=" -fno-schedule-insns" ;;
    neon_many | neon_interleaved) flags+=" -fno-schedule-fusion -fno-peephole2" ;;
    esac
    # shellcheck disable=SC2086 # a list of words
    "${cc[@]}" $flags -march="$march" -I. -c computed/cpu/"${f%%:*}".c -o "$out/${f%%:*}.o"
done
"${cc[@]}" -static -I. bench/arm/row.c model/quant.c "$out"/*.o -lm -o "$out/row"
include=(-I"$ggml/../include" -I"$ggml" -I"$ggml/ggml-cpu" -ffunction-sections)
for v in dot:+fp16 i8mm:+fp16+i8mm sve:+fp16+i8mm+sve2; do
    mkdir "$out/${v%%:*}"
    (
        cd "$out/${v%%:*}"
        "${cc[@]}" "${include[@]}" -march=$base"${v#*:}" -c "$ggml/ggml-cpu/arch/arm/quants.c" -o q.o
        aarch64-linux-gnu-g++ -O3 -std=c++17 "${include[@]}" -march=$base"${v#*:}" \
            -c "$ggml/ggml-cpu/arch/arm/repack.cpp" -o r.o
        "${cc[@]}" "${include[@]}" -march=$base"${v#*:}" -c "$ggml/ggml-cpu/quants.c" -o g.o
    )
    "${cc[@]}" -I. "-DPEER_${v%%:*}" bench/arm/peer.c "$out/${v%%:*}"/*.o -static -Wl,--gc-sections -lm -lstdc++ \
        -o "$out/peer_${v%%:*}"
done

# cycles CPUS PROGRAM ARGS...: "instructions c1 c2 ...", or dashes.
cycles() {
    local c
    c=$(python3 bench/arm/cycles.py "$@" 2>/dev/null | awk '{n = $2; l = l " " $3} END {if (n) print n l}')
    echo "${c:-- - - - -}"
}
# paste "a b c" "d e f": "a / d | b / e | c / f"
beside() {
    paste -d' ' <(tr ' ' '\n' <<<"$1") <(tr ' ' '\n' <<<"$2") |
        awk '{printf "%s%s / %s", sep, $1, $2; sep = " | "} END {print ""}'
}

wanted=" $* "
a76=cortex-a76,neoverse-n1,neoverse-v1,neoverse-v2
echo "| one row | instructions | A76 | N1 | V1 | V2 | V2, SVE2 |"
echo "|---|---|---|---|---|---|---|"
while read -r type dot repacked; do
    [ "$wanted" = "  " ] || [[ $wanted == *" $type "* ]] || continue
    ours=$(cycles $a76 "$out/row" neon "$type" 1 1)
    sve=$(cycles neoverse-v2 "$out/peer_sve" "$dot" 1 1)
    echo "| $type | $(beside "$ours" "$(cycles $a76 "$out/peer_dot" "$dot" 1 1)") | ${sve#* } |"
done <bench/arm/types
# more CYCLES OF_16: each of OF_16's figures, less CYCLES'
more() {
    paste -d' ' <(tr ' ' '\n' <<<"$1") <(tr ' ' '\n' <<<"$2") |
        awk '{printf "%s%s", sep, $1 ~ /^[0-9]/ && $2 ~ /^[0-9]/ ? $2 - $1 : "-"; sep = " "} END {print ""}'
}
# many KERNEL PEER CPUS TWO [PACKED]: a line of the tables of many rows
many() {
    local ours theirs whole packed
    ours=$(cycles "$3" "$out/row" "$1" "$type" 4 8)
    whole=$(cycles "$3" "$out/$2" "$4" 4 8)
    theirs=$whole packed=$4
    if [ "${5:-}" ]; then
        packed=$5
        theirs=$(cycles "$3" "$out/$2" "$5" 4 8)
    fi
    echo "| $type | $(beside "$ours" "$whole") | $(beside \
        "$(more "$ours" "$(cycles "$3" "$out/row" "$1" "$type" 4 16)")" \
        "$(more "$theirs" "$(cycles "$3" "$out/$2" "$packed" 4 16)")" | cut -d'|' -f2-) | ${5:+re-packed} |"
}
echo
echo "| 4 by 8 rows, i8mm | instructions | V1 | V2 | 8 more, V1 | V2 | |"
echo "|---|---|---|---|---|---|---|"
while read -r type dot repacked; do
    [ "$wanted" = "  " ] || [[ $wanted == *" $type "* ]] || continue
    two=$dot
    case $type in Q4_0 | Q4_1 | Q8_0 | Q4_K | Q6_K) two=$dot:2 ;; esac
    many i8mm peer_i8mm neoverse-v1,neoverse-v2 "$two" "$repacked"
done <bench/arm/types
echo
echo "| 4 by 8 rows, dot products | instructions | A76 | N1 | 8 more, A76 | N1 | |"
echo "|---|---|---|---|---|---|---|"
while read -r type dot repacked; do
    [ "$wanted" = "  " ] || [[ $wanted == *" $type "* ]] || continue
    many neon peer_dot cortex-a76,neoverse-n1 "$dot" "${repacked/x8_q8/x4_q8}"
done <bench/arm/types

# eight KERNEL ROWS CPUS PEER: what 8 more outputs take, ntx's interleaved (half of 16 more) / llama.cpp's re-packed
eight() {
    local ours theirs
    ours=$(more "$(cycles "$3" "$out/row" "$1" "$type" "$2" 16 interleaved)" \
        "$(cycles "$3" "$out/row" "$1" "$type" "$2" 32 interleaved)" |
        awk '{for (i = 1; i <= NF; i++) printf "%s ", $i / 2}')
    theirs=$(more "$(cycles "$3" "$out/$4" "$repacked" "$2" 8)" "$(cycles "$3" "$out/$4" "$repacked" "$2" 16)")
    [ "$repacked" ] || theirs="- - -"
    beside "${ours% }" "$theirs" | cut -d'|' -f2-
}
echo
echo "| in memory, 8 more outputs | 1 row, A76 | N1 | V1 | V2 | 4 rows, A76 | N1 | V1 | V2 |"
echo "|---|---|---|---|---|---|---|---|---|"
while read -r type dot packed; do
    [ "$wanted" = "  " ] || [[ $wanted == *" $type "* ]] || continue
    case $type in Q4_0 | Q8_0 | MXFP4 | IQ4_NL | Q4_K | Q5_K | Q6_K | IQ4_XS) ;; *) continue ;; esac
    line="| $type |"
    for rows in 1 4; do
        repacked=${packed/x8_q8/x4_q8}
        line+="$(eight neon $rows cortex-a76,neoverse-n1 peer_dot) |"
        repacked=$packed
        line+="$(eight i8mm $rows neoverse-v1,neoverse-v2 peer_i8mm) |"
    done
    echo "$line"
done <bench/arm/types
