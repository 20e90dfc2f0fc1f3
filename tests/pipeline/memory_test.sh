#!/bin/bash
# The budget is a promise: under a memory cgroup of --ram plus 64 MiB (page cache charged) a model of three times the cap runs,
# and the peak stays within. Needs root and the version 1 memory controller.
. "$(dirname "$0")/lib.sh"
sanitized && skip "a sanitizer's own memory is beyond the cap"
cg=/sys/fs/cgroup/memory/ntx-test-$$
mkdir "$cg" 2>/dev/null || skip "no cgroup v1 memory controller that we may use"
cleanup+=("rmdir $cg 2>/dev/null")
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
echo $cap >"$cg/memory.limit_in_bytes" || skip "cannot set a limit"
(echo $BASHPID >"$cg/tasks" && exec "$NTX_BIN/ntx" run "$tmp/m.gguf" "Once upon a time" --raw --ignore-eos -n 6 --ram $ram --ctx 128 --stats "$tmp/s" --quiet >"$tmp/out") || fail "run under the cap"
peak=$(cat "$cg/memory.max_usage_in_bytes")
hits=$(cat "$cg/memory.failcnt")
echo "model $((size >> 20)) MiB, --ram $((ram >> 20)) MiB: peak $((peak >> 20)) MiB of $((cap >> 20)), limit hit $hits times"
[ "$peak" -le $cap ] || fail "peak $peak over $cap"
[ "$hits" = 0 ] || fail "the limit was hit $hits times: the promise was kept by the kernel's reclaim, not by us"
