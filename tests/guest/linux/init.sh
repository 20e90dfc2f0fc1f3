#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# init.sh: PID 1 of the guest that guest_test.sh makes. It runs the tests, prints the result of each, and switches the
# machine off.
export PATH=/bin HOME=/root TMPDIR=/tmp LC_ALL=C
bb=/bin/busybox
$bb mount -t proc proc /proc
$bb mount -t sysfs sysfs /sys
[ -e /dev/null ] || $bb mount -t devtmpfs devtmpfs /dev
$bb mkdir -p /dev/shm /dev/pts
$bb mount -t tmpfs tmpfs /dev/shm
$bb mount -t tmpfs tmpfs /run
$bb mount -t cgroup2 cgroup2 /sys/fs/cgroup
$bb ln -sf /proc/self/fd /dev/fd
$bb ip link set lo up 2>/dev/null
$bb chmod 1777 /tmp
. /ntx/what
echo "guest: Linux $($bb uname -r), cgroups of version 2: $(cat /sys/fs/cgroup/cgroup.controllers)"
export NTX_BUILD=/ntx/build NTX_BIN=/ntx/build/bin NTX_SOURCE=/ntx NTX_TEST_SLOW=3
for t in $scripts; do
    bash "/ntx/tests/$t" 2>&1
    echo "guest: $t ended with $?"
done
for t in $programs; do
    "/ntx/build/tests/$t" 2>&1
    echo "guest: $t ended with $?"
done
echo "guest: end"
$bb sync
echo o >/proc/sysrq-trigger
while :; do $bb sleep 1; done
