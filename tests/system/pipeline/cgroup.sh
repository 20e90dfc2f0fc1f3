# SPDX-License-Identifier: Apache-2.0
# cgroup.sh: a cgroup of our own with a limit, in whichever version of cgroups this machine has. Sourced after lib.sh.
# Needs root.
#
#   cgroup_make memory|io    makes $cgroup, removed at exit; false where the controller is not to be had
#   cgroup_run COMMAND...    becomes the command, in the group (call it in a subshell)
#   memory_limit BYTES       limits memory, without swap
#   memory_peak, memory_hits peak in bytes; how often the limit was reached
#   read_limit DEV BYTES/s   DEV as MAJ:MIN
cgroup=
cgroup_make() {
    local v1=/sys/fs/cgroup/$1 v2=/sys/fs/cgroup
    [ "$1" != io ] || v1=/sys/fs/cgroup/blkio
    if [ -e "$v1/tasks" ] && mkdir "$v1/ntx-test-$$" 2>/dev/null; then
        cgroup=$v1/ntx-test-$$ cgroup_version=1
    elif [ -e $v2/cgroup.controllers ] && echo "+$1" 2>/dev/null >$v2/cgroup.subtree_control &&
        mkdir "$v2/ntx-test-$$" 2>/dev/null; then
        cgroup=$v2/ntx-test-$$ cgroup_version=2
    else
        return 1
    fi
    cleanup+=("wait_for 5 rmdir $cgroup 2>/dev/null")
}
cgroup_run() { echo "$BASHPID" >"$cgroup/cgroup.procs" && exec "$@"; }
memory_limit() {
    if [ $cgroup_version = 1 ]; then
        echo 0 >"$cgroup/memory.swappiness" && echo "$1" >"$cgroup/memory.limit_in_bytes"
    else
        { [ ! -e "$cgroup/memory.swap.max" ] || echo 0 >"$cgroup/memory.swap.max"; } && echo "$1" >"$cgroup/memory.max"
    fi
}
memory_peak() { cat "$cgroup"/memory.{max_usage_in_bytes,peak} 2>/dev/null; }
memory_hits() {
    if [ $cgroup_version = 1 ]; then
        cat "$cgroup/memory.failcnt"
    else
        sed -n 's/^max //p' "$cgroup/memory.events"
    fi
}
read_limit() {
    if [ $cgroup_version = 1 ]; then
        echo "$1 $2" >"$cgroup/blkio.throttle.read_bps_device"
    else
        echo "$1 rbps=$2" >"$cgroup/io.max"
    fi
}
