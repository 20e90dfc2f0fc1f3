#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Memory stays within the budget: under a memory cgroup of --ram plus 64 MiB (page cache included) a model of three
# times that size runs, and the peak stays below the limit. Needs root and a memory controller, of either version of
# cgroups.
. "$(dirname "$0")/../../lib/test.sh"
. "$(dirname "$0")/cgroup.sh"
sanitized && skip "a sanitizer's own memory is beyond the cap"
cgroup_make memory || skip "no memory controller of cgroups that we may use"
ram=$((${NTX_TEST_RAM_MIB:-48} << 20))
cap=$((ram + (64 << 20)))
model "$tmp/m.gguf" --layers 16 --embd 1024 --ff 4096 --heads 16 --kv 4 --type Q8_0
size=$(stat -c %s "$tmp/m.gguf")
while [ "$size" -lt $((cap * 3)) ]; do
    layers=$((${layers:-16} + 8))
    model "$tmp/m.gguf" --layers "$layers" --embd 1024 --ff 4096 --heads 16 --kv 4 --type Q8_0
    size=$(stat -c %s "$tmp/m.gguf")
done
sync "$tmp/m.gguf"
dd if="$tmp/m.gguf" iflag=nocache count=0 status=none
memory_limit $cap || skip "cannot set a limit"
(cgroup_run "$NTX_BIN/ntx" run "$tmp/m.gguf" "Once upon a time" --raw --ignore-eos -n 6 --ram $ram --ctx 128 \
    --stats "$tmp/s" --quiet >"$tmp/out") || fail "run under the cap"
peak=$(memory_peak)
hits=$(memory_hits)
echo \
    "cgroup v$cgroup_version: model $((size >> 20)) MiB, --ram $((ram >> 20)) MiB: peak $((peak >> 20)) MiB of" \
    "$((cap >> 20)), limit hit $hits times"
[ -n "$peak" ] && [ "$peak" -le $cap ] || fail "peak $peak over $cap"
[ "$hits" = 0 ] || fail "the limit was hit $hits times: the promise was kept by the kernel's reclaim, not by us"
