#!/bin/bash
# Decode of a model with experts under a memory cap on varied text (tokens drawn almost evenly), ntx beside llama.cpp, in turn, caches dropped
# before each: CSV on stdout.
#
#   bench/experts/capped.sh MODEL.gguf WHO...      WHO: ntx, ntx-off (without prefetch), or a read-ahead in KiB: llama.cpp with that
#   PERCENT=35   N=tokens (32)   ROUNDS=2   PEER=/path/llama-completion   PEER_LIMIT=seconds (200)   CEILING=no
#
# Needs root, the version 1 memory controller, fio. The drive's own read-ahead is put back. The ceiling before and after is the rate of random
# reads as long as an expert's matrix (fio, io_uring, O_DIRECT, huge pages).
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
model=$(realpath "$1"); shift
ntx=${NTX:-$here/build/bin/ntx} n=${N:-32} rounds=${ROUNDS:-2}
size=$(stat -Lc %s "$model")
cap=$((size / 100 * ${PERCENT:-35}))
cg=/sys/fs/cgroup/memory/ntx-experts
dev=$(lsblk -no PKNAME "$(df --output=source "$model" | tail -1)" 2>/dev/null | head -1)
[ -n "$dev" ] || dev=$(basename "$(df --output=source "$model" | tail -1)")
queue=/sys/block/$dev/queue/read_ahead_kb
mkdir -p $cg
old_ra=$(cat "$queue")
old_hp=$(cat /proc/sys/vm/nr_hugepages)
tmp=$(mktemp -d)
trap 'echo $old_ra >$queue; echo $old_hp >/proc/sys/vm/nr_hugepages; rmdir $cg; rm -rf $tmp' EXIT

ceiling() { # GB/s
    [ "${CEILING:-yes}" = yes ] || { echo "not measured, in"; return; }
    echo 16 >/proc/sys/vm/nr_hugepages
    fio --name=r --filename="$model" --readonly --direct=1 --ioengine=io_uring --rw=randread --bs=448k --iodepth=8 --mem=mmaphuge --hugepage-size=2m --runtime=4 \
        --time_based --size=100% --output-format=terse 2>/dev/null | grep '^3;' | cut -d';' -f7 | awk '{printf "%.3f\n", $1 * 1024 / 1e9}'
    echo "$old_hp" >/proc/sys/vm/nr_hugepages
}
capped() {
    echo $cap >$cg/memory.limit_in_bytes
    (echo "$BASHPID" >$cg/tasks; exec "$@")
}
run_ntx() { # OPTIONS...
    capped "$ntx" run "$model" "Once upon a time" --raw --ignore-eos --ctx 256 -n "$n" --temp 100 --top-k 0 --top-p 1 --min-p 0 --seed 7 --ram $((cap - (64 << 20))) \
        --stats "$tmp/s" --quiet "$@" >"$tmp/text"
    python3 - "$tmp/s" <<'P'
import json, sys
j = json.load(open(sys.argv[1]))
g = lambda k: j.get(k, 0)
print('%.4f,%.3f,%.3f,%.2f,%.2f,%.3f,%.3f,%.3f,%.3f,%d' % (g('decode_tok_s'), g('bytes_read_per_token') / 1e9, g('io_gb_s'), g('io_stall_s'), g('compute_s'),
      g('expert_hit_rate'), g('prefetch_recall'), g('prefetch_hit_rate'), g('prefetch_wasted_bytes') / 1e9, g('peak_bytes')))
P
}
run_peer() { # KIB
    echo "$1" >"$queue"
    capped timeout "${PEER_LIMIT:-200}" "$PEER" -m "$model" -p "Once upon a time" -n "$n" -t "$(nproc)" -c 256 --temp 100 --top-k 0 --top-p 1 --min-p 0 --seed 7 --ignore-eos -no-cnv \
        --no-warmup --no-repack >"$tmp/text" 2>"$tmp/err" </dev/null || :
    echo "$old_ra" >"$queue"
    sed -n 's/.* eval time = .*, *\([0-9.]*\) tokens per second.*/\1/p' "$tmp/err" | tail -1 | sed 's/$/,,,,,,,,,/'
}
echo "# commit $(git -C "$here" rev-parse --short HEAD 2>/dev/null || echo ?), model $(basename "$model") of $size bytes, cap $cap, $n tokens, $(date -u +%F)"
echo "# fio before: $(ceiling) GB/s"
echo "who,round,tok_s,gb_per_token,io_gb_s,stall_s,compute_s,expert_hit_rate,prefetch_recall,prefetch_hit_rate,wasted_gb,peak_bytes"
for ((r = 1; r <= rounds; r++)); do
    for who in "$@"; do
        sync
        echo 3 >/proc/sys/vm/drop_caches
        case $who in
        ntx) row=$(run_ntx) ;;
        ntx-off) row=$(run_ntx --prefetch off) ;;
        *) row=$(run_peer "$who") ;;
        esac
        echo "$who,$r,${row:-failed}"
    done
done
echo "# fio after: $(ceiling) GB/s"
