# SPDX-License-Identifier: Apache-2.0
# capped_lib.sh: what the comparisons under a memory cap share. Sourced with the model's path in $1; $here is the
# repository. Needs root, the version 1 memory controller and fio. At exit the drive's read-ahead and the huge pages are
# what they were, and $tmp is gone.
model=$(realpath "$1")
ntx=${NTX:-$here/build/bin/ntx} rounds=${ROUNDS:-2}
size=$(stat -Lc %s "$model")
cg=/sys/fs/cgroup/memory/ntx-bench
dev=$(lsblk -no PKNAME "$(df --output=source "$model" | tail -1)" 2>/dev/null | head -1)
[ -n "$dev" ] || dev=$(basename "$(df --output=source "$model" | tail -1)")
queue=/sys/block/$dev/queue/read_ahead_kb
mkdir -p $cg
old_ra=$(cat "$queue")
old_hp=$(cat /proc/sys/vm/nr_hugepages)
tmp=$(mktemp -d)
trap 'echo $old_ra >$queue; echo $old_hp >/proc/sys/vm/nr_hugepages; rmdir $cg; rm -rf $tmp' EXIT

drop() { sync; echo 3 >/proc/sys/vm/drop_caches; }
capped() { # CAP COMMAND...
    local cap=$1; shift
    echo "$cap" >$cg/memory.limit_in_bytes
    (echo "$BASHPID" >$cg/tasks; exec "$@")
}
fio_rate() { # SECONDS RW SIZE DEPTH: KiB/s with O_DIRECT into huge pages
    echo 24 >/proc/sys/vm/nr_hugepages
    fio --name=r --filename="$model" --readonly --direct=1 --ioengine=io_uring --rw="$2" --bs="$3" --iodepth="$4" \
        --mem=mmaphuge --hugepage-size=2m \
        --runtime="$1" --time_based --size=100% --output-format=terse 2>/dev/null | grep '^3;' | cut -d';' -f7
    echo "$old_hp" >/proc/sys/vm/nr_hugepages
}
gb_s() { awk '{printf "%.3f\n", $1 * 1024 / 1e9}'; }
head_line() {
    echo "# commit $(git -C "$here" rev-parse --short HEAD 2>/dev/null ||
        echo ?), model $(basename "$model") of $size bytes, $*$(date -u +%F)"
}
