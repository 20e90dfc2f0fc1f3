#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Resources that run out, and clocks that jump: /dev/shm full (nothing of ntx is in it), the runtime directory's file
# system full, a memory cgroup smaller than the model needs, or made so during an answer, and memory that runs out
# during a load. Each gives a clear error within seconds, or makes no difference; nothing is left behind.
. "$(dirname "$0")/../../lib/test.sh"
. "$(dirname "$0")/cgroup.sh"
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 3
run=("$NTX_BIN/ntx" run "$tmp/m.gguf" "Once upon a time" --raw --ignore-eos --ctx 64 --quiet -n 24)
"${run[@]}" --ram 14M >"$tmp/want" || fail "undisturbed run"
done_=()
left() { find "$tmp" -name 'ntx-run-*' | grep . || pgrep -f "$tmp/.*ntx-run-"; }
# told PATTERN SECONDS-AT-MOST COMMAND...: it fails with one line that says so
told() {
    local pattern=$1 most=$(($2 * ${NTX_TEST_SLOW:-1})) begin=$SECONDS code; shift 2
    timeout -k 1 $((120 * $(patience))) "$@" >"$tmp/out" 2>"$tmp/err"
    code=$?
    [ $code = 111 ] || fail "$pattern: exit $code: $(cat "$tmp/err")"
    [ $((SECONDS - begin)) -le $((3 * most * $(patience))) ] || fail "$pattern: took $((SECONDS - begin)) s"
    grep -Eq "$pattern" "$tmp/err" && [ "$(wc -l <"$tmp/err")" = 1 ] ||
        fail "'$(cat "$tmp/err")' lacks '$pattern', or is more than a line"
    [ -z "$(left)" ] || fail "left behind: $(left)"
}

# ---- /dev/shm, and the private daemons' directory: full, in a mount namespace of its own
if unshare --mount true 2>/dev/null; then
    export NTX_FULL=$tmp/full
    mkdir "$NTX_FULL"
    # full DIRECTORY COMMAND...: with a tmpfs of 256 KiB there, filled to the last byte
    # shellcheck disable=SC2016
    full=(unshare --mount --propagation private bash \
        -c 'mount -t tmpfs -o size=256k tmpfs "$1" && head -c 1M /dev/zero >"$1/filler" 2>/dev/null; shift; exec "$@"' \
        full)
    "${full[@]}" /dev/shm "${run[@]}" --ram 14M >"$tmp/got" 2>"$tmp/err" || fail "/dev/shm full: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "/dev/shm full"
    told 'No space left on device.*(make room|NTX_RUNTIME)' 10 "${full[@]}" "$NTX_FULL" env TMPDIR="$NTX_FULL" \
        "${run[@]}" --ram 14M
    done_+=("full file systems")
else
    left_out "full file systems: no mount namespace"
fi

# ---- memory
if sanitized; then
    left_out "a memory cap: a sanitizer's own memory is beyond any"
elif cgroup_make memory; then
    # shellcheck disable=SC2016
    in_group=(bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$cgroup")
    memory_limit $((20 << 20)) || skip "cannot set a limit"
    told 'limit of the memory cgroup' 10 "${in_group[@]}" "${run[@]}" --ram 300M
    # As little as the daemons themselves take: there is no budget, and the error names the limit, not "0 B".
    memory_limit $((60 << 20))
    told 'memory limit of this cgroup.* is 60\.0 MiB.*raise the limit' 10 "${in_group[@]}" "${run[@]}"
    # The cap is lowered during a run: the kernel kills, and that is reported.
    memory_limit $((200 << 20))
    "${in_group[@]}" "${run[@]}" --ram 14M --link nvme=30M -n 40 >"$tmp/out" 2>"$tmp/err" &
    pid=$!
    wait_for 20 test -s "$tmp/out" || fail "no token under the cap: $(cat "$tmp/err")"
    begin=$SECONDS
    for ((mib = 60; mib > 4; mib -= 4)); do memory_limit $((mib << 20)) 2>/dev/null || break; done
    # Locked memory cannot be reclaimed: the limit stops there, and the next allocation of any size fails.
    (cgroup_run python3 -c 'b = bytearray(64 << 20)') 2>/dev/null
    wait $pid; code=$?
    if [ $code = 0 ]; then # none of ours was the victim
        head -c -1 "$tmp/out" | cmp -s - <("${run[@]}" --ram 14M -n 40 | head -c -1) ||
            fail "wrong text after the cap was hit"
    else
        [ $code = 111 ] && [ "$(wc -l <"$tmp/err")" = 1 ] || [ $code = 137 ] ||
            fail "the cap was hit: exit $code: $(cat "$tmp/err")"
        [ $((SECONDS - begin)) -le $((30 * ${NTX_TEST_SLOW:-1} * $(patience))) ] ||
            fail "the cap was hit: ended after $((SECONDS - begin)) s"
    fi
    [ -z "$(left)" ] || [ $code = 137 ] || fail "left behind: $(left)"
    "${run[@]}" --ram 14M >"$tmp/got" || fail "run after the cap"
    same "$tmp/want" "$tmp/got" "after the cap"
    done_+=(" a memory cap (exit $code)")
else
    left_out "a memory cap: no memory controller of cgroups that we may use"
fi

# ---- memory that ends while the region's is brought in: before anything is read, in the middle, with the last page
if ! sanitized; then
    for pages in 1 5 9; do
        told 'cannot get .* of memory for the shared region: Cannot allocate memory; use a smaller --ram' 10 \
            env LD_PRELOAD="$NTX_BUILD/tests/libscarce_memory.so" NTX_PAGES=$pages "${run[@]}"
    done
    done_+=(" memory that ends")
fi

# ---- the wall clock jumps by days and years at every look; ntx uses CLOCK_MONOTONIC, which nobody can set
if ! sanitized; then
    jumped=(env LD_PRELOAD="$NTX_BUILD/tests/libjumping_clock.so")
    "${jumped[@]}" date +%Y >"$tmp/year" && ! date +%Y | cmp -s - "$tmp/year" ||
        [ "$("${jumped[@]}" date +%j)" != "$(date +%j)" ] || fail "the clock does not jump"
    begin=$SECONDS
    "${jumped[@]}" "${run[@]}" --ram 14M --link nvme=100M --stats "$tmp/s" >"$tmp/got" 2>"$tmp/err" ||
        fail "with a clock that jumps: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "a clock that jumps"
    awk -v t="$(stat_of "$tmp/s" ttft_s)" -v most="$((SECONDS - begin + 1))" 'BEGIN {exit !(t > 0 && t < most)}' ||
        fail "ttft_s is $(stat_of "$tmp/s" ttft_s) with a clock that jumps"
    "${jumped[@]}" "${run[@]}" --ram 14M --fault "iod:kill@read=77,start=1" >"$tmp/got" 2>"$tmp/err" ||
        fail "a killed worker and a clock that jumps: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "a killed worker and a clock that jumps"
    done_+=(" a clock that jumps")
fi
finish "survived: $(IFS=,; echo "${done_[*]:-nothing}")"
