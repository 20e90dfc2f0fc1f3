#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# kill -9 of ntx-iod at seeded random moments while the block layer throttles reads: the dead process's reads are still
# under way, and arrive for seconds after its death. The text is the same every time: tainted slots are not reused until
# then. Needs root and a controller of either version of cgroups that throttles reads. NTX_KILL_ROUNDS: number of
# moments (10; the campaign has 50).
. "$(dirname "$0")/../../lib/test.sh"
. "$(dirname "$0")/cgroup.sh"
cgroup_make io || skip "no blkio (cgroup v1) or io (v2) controller that we may use"
dev=$(findmnt -no MAJ:MIN --target "$tmp" | tr -d ' ' || :)
[ -n "$dev" ] && [ "${dev%%:*}" != 0 ] ||
    skip "no block device can be named for $tmp (in a chroot or on overlay or tmpfs): nothing to throttle"
read_limit "$dev" 60000000 2>/dev/null || skip "device $dev cannot be throttled"
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 3
sync "$tmp/m.gguf"
run=("$NTX_BIN/ntx" run "$tmp/m.gguf" "Once upon a time there was" --raw --ignore-eos --ram 12M --ctx 64 --quiet -n 6)
"${run[@]}" >"$tmp/want" || fail "undisturbed run"
rounds=${NTX_KILL_ROUNDS:-10}
RANDOM=${NTX_SEED:-42}
kills=0
for ((i = 0; i < rounds; i++)); do
    (cgroup_run "${run[@]}") >"$tmp/got" 2>"$tmp/err" &
    pid=$!
    wait_for 5 eval 'child $pid ntx-iod >/dev/null' || fail "no ntx-iod"
    read -rt "$(printf '0.%03d' $((RANDOM % 1000)))" <> <(:) || :
    victim=$(child $pid ntx-iod) && kill -9 "$victim" 2>/dev/null && kills=$((kills + 1))
    wait $pid || fail "round $i: exit $?: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "round $i"
done
[ $kills -ge $((rounds * 3 / 4)) ] || fail "only $kills of $rounds kills hit"
echo "identical text after $kills kills with reads under way"
