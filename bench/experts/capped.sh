#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Decode of a model with experts under a memory cap on varied text (tokens drawn almost evenly), ntx and llama.cpp in
# turn, with caches dropped before each run. CSV on stdout.
#
#   bench/experts/capped.sh MODEL.gguf WHO...   WHO: ntx, ntx-off (without prefetch), or a read-ahead in KiB: llama.cpp
#                                               with that read-ahead; bmoe-MIB: BigMoeOnEdge with an expert cache of
#                                               so many MiB (0: none), its dense weights by O_DIRECT; PROGRAM:HOW
#                                               or PROGRAM:HOW:KIB: a program made of bench/peer.c, HOW it loads and
#                                               the read-ahead. All take prompts of the same tokens and then any
#   PERCENT=35   N=tokens (32)   ROUNDS=2
#   PEER=/path/llama-completion or llama-bench (it first runs one token to warm up; its tokens are random)
#   PEER_N=the peer's tokens (N)   PEER_LIMIT=seconds (200)   CEILING=no, or fio's block size (448k)
#   BMOE=/path/bmoe-cli   BMOE_ARGS="--predict-prefetch"
#   PROMPT=N: a prompt of N tokens first, drawn evenly from the real ones of ntx-mkmodel's vocabulary (the peer, which
#       must be llama-bench, draws from all); its rate is the last column
#   COLD=yes: llama-bench without its own prompt first, which leaves experts in memory; ntx is always cold
#
# Needs root, the version 1 memory controller and fio. Restores the drive's read-ahead. The ceiling before and after is
# the rate of random reads of an expert matrix's size (fio, io_uring, O_DIRECT, huge pages).
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
. "$here/bench/capped_lib.sh"
shift
n=${N:-32} cap=$((size / 100 * ${PERCENT:-35})) prompt=${PROMPT:-0} text="Once upon a time" ctx=256
if [ "$prompt" -gt 0 ]; then
    ctx=$(((prompt + n) / 256 * 256 + 256))
    text=$(python3 -c "import random; random.seed(7); print([random.randrange(260, 548) for _ in range($prompt)])" |
        "$ntx" detokenize "$model")
fi

ceiling() { # GB/s
    [ "${CEILING:-448k}" != no ] || { echo "not measured, in"; return; }
    fio_rate 3 randread "${CEILING:-448k}" 8 | gb_s
}
run_ntx() { # OPTIONS...
    capped $cap "$ntx" run "$model" "$text" --raw --ignore-eos --ctx $ctx -n "$n" --temp 100 --top-k 0 --top-p 1 \
        --min-p 0 --seed 7 --ram $((cap - (64 << 20))) \
        --stats "$tmp/s" --quiet "$@" >"$tmp/text"
    python3 - "$tmp/s" <<'P'
import json, sys
j = json.load(open(sys.argv[1]))
g = lambda k: j.get(k, 0)
print('%.4f,%.3f,%.3f,%.2f,%.2f,%.3f,%.3f,%.3f,%.3f,%d,%.2f' % (
    g('decode_tok_s'), g('bytes_read_per_token') / 1e9, g('io_gb_s'), g('io_stall_s'), g('compute_s'),
    g('expert_hit_rate'), g('prefetch_recall'), g('prefetch_hit_rate'), g('prefetch_wasted_bytes') / 1e9,
    g('peak_bytes'), g('prefill_tok_s')))
P
}
run_peer() { # KIB
    echo "$1" >"$queue"
    if [ "$(basename "$PEER")" = llama-bench ]; then
        capped $cap timeout "${PEER_LIMIT:-200}" "$PEER" -m "$model" -p "$prompt" -n "${PEER_N:-$n}" -t "$(nproc)" \
            -r 1 --repack 0 -lm mmap ${COLD:+--no-warmup} -o csv >"$tmp/text" 2>"$tmp/err" </dev/null || :
        echo "$old_ra" >"$queue"
        python3 -c "
import csv, sys
rate = {int(r['n_prompt']) > 0: r['avg_ts'] for r in csv.DictReader(open(sys.argv[1]))}
print(rate.get(False, 'not done') + ',' * 10 + rate.get(True, ''))" "$tmp/text"
        return
    fi
    capped $cap timeout "${PEER_LIMIT:-200}" "$PEER" -m "$model" -p "Once upon a time" -n "${PEER_N:-$n}" \
        -t "$(nproc)" -c 256 --temp 100 --top-k 0 --top-p 1 --min-p 0 --seed 7 --ignore-eos -no-cnv \
        --no-warmup --no-repack >"$tmp/text" 2>"$tmp/err" </dev/null || :
    echo "$old_ra" >"$queue"
    sed -n 's/.* eval time = .*, *\([0-9.]*\) tokens per second.*/\1/p' "$tmp/err" | tail -1 | sed 's/$/,,,,,,,,,,/'
}
run_bmoe() { # MIB
    capped $cap timeout "${PEER_LIMIT:-200}" "$BMOE" -m "$model" -p "$text" -n "$n" -t "$(nproc)" -c $ctx --temp 100 \
        --top-k 0 --top-p 1 --seed 7 --moe-stream --cache-mb "$1" --force-cache --dense-weights anon \
        ${BMOE_ARGS:-} >"$tmp/text" 2>"$tmp/err" </dev/null || :
    python3 - "$tmp/text" <<'P'
import re, sys
text = open(sys.argv[1], errors='replace').read()
g = lambda pattern: (re.findall(pattern, text) or [''])[-1]
print('%s,,,,,%s,,,,,%s' % (g(r'generation: .*\(([0-9.]+) tok/s\)') or 'failed', g(r'moe-cache: ([0-9.]+)% hit'),
                            g(r'prefill: .*\(([0-9.]+) tok/s\)')))
P
}
run_program() { # PROGRAM HOW KIB
    echo "${3:-$old_ra}" >"$queue"
    capped $cap timeout "${PEER_LIMIT:-200}" "$1" "$model" "$(nproc)" "$2" "$prompt" "${PEER_N:-$n}" >"$tmp/text" \
        2>"$tmp/err" </dev/null || echo "failed: $?," >"$tmp/text"
    echo "$old_ra" >"$queue"
    sed 's/,/,,,,,,,,,,/' "$tmp/text"
}
head_line "cap $cap, $n tokens, "
echo "# fio before: $(ceiling) GB/s"
columns=who,round,tok_s,gb_per_token,io_gb_s,stall_s,compute_s,expert_hit_rate,prefetch_recall,prefetch_hit_rate
echo "$columns,wasted_gb,peak_bytes,prefill_tok_s"
for ((r = 1; r <= rounds; r++)); do
    for who in "$@"; do
        drop
        case $who in
        ntx) row=$(run_ntx) ;;
        bmoe-*) row=$(run_bmoe "${who#bmoe-}") ;;
        ntx-off) row=$(run_ntx --prefetch off) ;;
        *:*)
            IFS=: read -r program how kib <<<"$who"
            row=$(run_program "$program" "$how" "$kib")
            who=$(basename "$program"):$how${kib:+:$kib}
            ;;
        *) row=$(run_peer "$who") ;;
        esac
        echo "$who,$r,${row:-failed}"
    done
done
echo "# fio after: $(ceiling) GB/s"
