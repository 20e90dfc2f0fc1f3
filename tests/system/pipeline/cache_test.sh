#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Reads bypass the page cache: after a run it has at most the header's pages of the model, and no read was buffered.
# Where O_DIRECT or io_uring is refused, the text is the same, and a line reports it.
. "$(dirname "$0")/../../lib/test.sh"
command -v fincore >/dev/null || skip "fincore is not installed"
model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0
sync "$tmp/m.gguf"
dd if="$tmp/m.gguf" iflag=nocache count=0 status=none
cached() { fincore -bno RES "$1" | tr -d ' '; }
[ "$(cached "$tmp/m.gguf")" = 0 ] || skip "this file system does not drop cached pages on request"
ntx run "$tmp/m.gguf" "Once upon a time" --raw --ignore-eos -n 8 --ram 12M --ctx 64 2>"$tmp/err" >/dev/null ||
    fail "run: $(cat "$tmp/err")"
grep -q 'page cache\|O_DIRECT' "$tmp/err" && skip "O_DIRECT is refused here: $(cat "$tmp/err")"
after=$(cached "$tmp/m.gguf")
[ "$after" -le 262144 ] || fail "$after bytes of the model are in the page cache"
echo "$after bytes cached after the run"
# tmpfs refuses O_DIRECT or has no drive under it: it still works.
shm=$(mktemp -d /dev/shm/ntx-test-XXXXXX) || skip "no /dev/shm"
cleanup+=("rm -rf $shm")
cp "$tmp/m.gguf" "$shm/"
ntx run "$tmp/m.gguf" "Once upon a time" --raw --ignore-eos -n 8 --ram 12M --ctx 64 --quiet >"$tmp/a" || fail "run"
told='read through the page cache: it lies in memory (tmpfs)'
for _ in 1 2 3 4 5; do # ntx-iod tells it beside the load, whose end may come first
    ntx run "$shm/m.gguf" "Once upon a time" --raw --ignore-eos -n 8 --ram 12M --ctx 64 >"$tmp/b" 2>"$tmp/err" ||
        fail "run on tmpfs: $(cat "$tmp/err")"
    same "$tmp/a" "$tmp/b" "tmpfs"
    ! grep -q "$told" "$tmp/err" || break
done
grep -q "$told" "$tmp/err" || fail "tmpfs: not told: $(cat "$tmp/err")"
for _ in 1 2 3 4 5; do # likewise
    "$(dirname "$0")/no_uring.py" "$NTX_BIN/ntx" run "$tmp/m.gguf" "Once upon a time" --raw --ignore-eos -n 8 \
        --ram 12M --ctx 64 >"$tmp/c" 2>"$tmp/err"
    rc=$?
    [ $rc != 0 ] || grep -q 'io_uring is refused here: Operation not permitted' "$tmp/err" || continue
    break
done
case $rc in
0)
    same "$tmp/a" "$tmp/c" "no io_uring"
    grep -q 'io_uring is refused here: Operation not permitted' "$tmp/err" ||
        fail "io_uring: not told: $(cat "$tmp/err")"
    ;;
77) left_out "no seccomp filter can be set here, so io_uring cannot be refused" ;;
*) fail "run without io_uring: $(cat "$tmp/err")" ;;
esac
finish "the page cache stays empty, and what falls back is told"
