#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# K and V beyond memory beside their byte arithmetic, and beside what the planner says: CSV on stdout.
#
#   bench/prefix/beyond.sh MODEL.gguf TEXT STATE KV_RAM [options of `ntx run`: --ctx N, --ram SIZE, ...]
#   RATE=bytes per second of the throttled drive (blkio.throttle; 0: not throttled)   N=tokens (16)   NTX=.../ntx
#   PROFILE=a profile of `ntx doctor`, to run `ntx plan` too
#
# STATE: a directory on the drive that holds the model. Where it has no prefix of the text yet, one is computed first,
# in memory: that is not timed. Then N tokens are written behind it, from the file, with KV_RAM of memory. A pass reads
# K and V, and the weights that stream, from one drive: (K and V + weights) / RATE is what it takes at least. Needs root
# and the version 1 blkio controller, if RATE is not 0.
set -eu
here=$(cd "$(dirname "$0")/../.." && pwd)
[ $# -ge 4 ] || { sed -n '3,11s/^# \{0,1\}//p' "$0"; exit 100; }
model=$(realpath "$1") text=$2 state=$3 kv_ram=$4; shift 4
ntx=${NTX:-$here/build/bin/ntx} n=${N:-16} rate=${RATE:-0}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"; [ ! -d /sys/fs/cgroup/blkio/ntx-beyond ] || rmdir /sys/fs/cgroup/blkio/ntx-beyond || :' EXIT
common=(-f "$text" --raw --temp 0 --quiet --draft off --state "$state" --state-max 16G "$@")
mkdir -p "$state"
[ -n "$(find "$state" -name '*.prefix' -print -quit)" ] || "$ntx" run "$model" "${common[@]}" --ram 4G -n 1 >/dev/null
if [ "$rate" != 0 ]; then
    mkdir -p /sys/fs/cgroup/blkio/ntx-beyond
    echo "$(lsblk -no MAJ:MIN "$(df --output=source "$model" | tail -1)" |
        tr -d ' ') $rate" >/sys/fs/cgroup/blkio/ntx-beyond/blkio.throttle.read_bps_device
fi
(
    [ "$rate" = 0 ] || echo "$BASHPID" >/sys/fs/cgroup/blkio/ntx-beyond/tasks
    exec "$ntx" run "$model" "${common[@]}" --kv-ram "$kv_ram" -n "$n" --json
) >"$tmp/out"
plan=()
[ -z "${PROFILE:-}" ] || plan=(plan "$model" --profile "$PROFILE" --kv-ram "$kv_ram" "$@" --json)
[ ${#plan[@]} = 0 ] || [ "$rate" = 0 ] || plan+=(--link "nvme=$rate")
[ ${#plan[@]} = 0 ] || "$ntx" "${plan[@]}" >"$tmp/plan"
python3 - "$tmp" "$rate" "$n" <<'P'
import json, os, sys
tmp, rate, n = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
s = json.loads(open(tmp + '/out').read().splitlines()[-1])['stats']
plan = json.load(open(tmp + '/plan')) if os.path.exists(tmp + '/plan') else {}
kv, weights = s['kv_read_bytes'] / s['passes'], s['bytes_read_per_token']
by = rate / (kv + weights) if rate else 0
print('model,positions,kv_ram,rate,kv_bytes_a_pass,weight_bytes_a_pass,tok_s,by_the_bytes,share,gb_s,plan_tok_s,'
      'cached,held_most,peak_bytes')
print('%s,%d,%d,%d,%.0f,%.0f,%.4f,%.4f,%.3f,%.3f,%s,%d,%d,%d' % (
    s['model'], s['prompt_tokens'] + s['generated_tokens'], s['kv_ram'], rate, kv, weights, s['decode_tok_s'], by,
    s['decode_tok_s'] / by if by else 0, (kv + weights) * s['decode_tok_s'] / 1e9, plan.get('predicted_tok_s', ''),
    s['cached_tokens'], s['kv_held_most'], s['peak_bytes']))
P
