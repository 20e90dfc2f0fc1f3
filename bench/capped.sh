#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Decode and prefill under a memory cap, ntx beside llama.cpp, in turn, caches dropped before each: CSV on stdout.
#
#   bench/capped.sh MODEL.gguf [PERCENT...]        caps in percent of the file (default 35 60 90)
#   PEER=/path/llama-bench   PEER_ARGS="--repack 0 -lm mmap"   N=tokens (6)   ROUNDS=2
#   PROMPT=tokens (1: no prefill is measured)   PEER_N=tokens of the peer (N)
#   READAHEAD=256 (KiB, for the peer; the drive's own is restored)
#
# Needs root, the version 1 memory controller and fio. The drive's ceiling (fio, io_uring, O_DIRECT, huge pages, best of
# 512 KiB and 1 MiB at depths 4 and 8) is taken before and after; if the two differ by over 10 %, the run says "void".
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
. "$here/bench/capped_lib.sh"
shift
[ $# -gt 0 ] || set -- 35 60 90
n=${N:-6} ra=${READAHEAD:-256} prompt=${PROMPT:-1}
ctx=$((prompt + n > 250 ? prompt + n + 6 : 256))

ceiling() { # GB/s
    for bs in 512k 1m; do for qd in 4 8; do fio_rate 3 read $bs $qd; done; done | sort -n | tail -1 | gb_s
}
head_line
echo "who,cap_percent,round,tok_s,prefill_tok_s,gb_per_token,io_gb_s,stall_s,peak_bytes"
before=$(ceiling)
for pc in "$@"; do
    cap=$((size / 100 * pc))
    for ((r = 1; r <= rounds; r++)); do
        drop
        capped $cap "$ntx" bench "$model" -p "$prompt" -n "$n" -r 1 --ctx "$ctx" --ram $((cap - (64 << 20))) \
            --json >"$tmp/ntx.json"
        python3 - "$tmp/ntx.json" "$pc" "$r" <<'P'
import json, sys
j = json.load(open(sys.argv[1]))
print('ntx,%s,%s,%.4f,%.2f,%.3f,%.3f,%.2f,%d'
      % (sys.argv[2], sys.argv[3], j['decode_tok_s'], j['prefill_tok_s'], j['bytes_read_per_token'] / 1e9,
         j['io_gb_s'], j['io_stall_s'], j['peak_bytes']))
P
        if [ -n "${PEER:-}" ]; then
            drop
            echo "$ra" >"$queue"
            t=$(capped $cap "$PEER" -m "$model" -p $((prompt > 1 ? prompt : 0)) -n "${PEER_N:-$n}" -t "$(nproc)" \
                -r 1 --no-warmup ${PEER_ARGS:-} -o csv 2>/dev/null | python3 -c "
import csv, sys
rows = {r['n_gen'] != '0': r['avg_ts'] for r in csv.DictReader(sys.stdin)}
print('%s,%s' % (rows.get(True, 'failed'), rows.get(False, '')))")
            echo "$old_ra" >"$queue"
            echo "llama.cpp,$pc,$r,$t,,,,"
        fi
    done
done
after=$(ceiling)
echo "# fio ceiling before $before GB/s, after $after GB/s$(awk -v a="$before" \
    -v b="$after" \
    'BEGIN { d = a > b ? a - b : b - a; if (d > 0.1 * (a > b ? a : b)) printf " (void: they differ by over 10 %%)" }')"
