#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
# guest_init.sh: PID 1 of the guest that guest_test.sh makes. It installs the package, runs ntx as /what says, and
# purges it. Then it runs a newcomer's commands in a checkout, and switches the machine off.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C DEBIAN_FRONTEND=noninteractive
/bin/busybox --install -s /bin 2>/dev/null # what the packages lack
off() {
    echo "guest: end"
    sync
    echo o >/proc/sysrq-trigger
    while :; do sleep 1; done
}
mount -t proc proc /proc
echo 1 >/proc/sys/kernel/printk # else the kernel's warnings about a slow machine would break our lines
mount -t sysfs sysfs /sys
mkdir -p /dev/shm
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
ln -sf /proc/self/fd /dev/fd
ldconfig
dpkg -i /ntx.deb >/dpkg.log 2>&1 || { cat /dpkg.log; off; }
echo "guest: $(ntx --version), installed: $(dpkg-query -W -f '${Package} ${Architecture} ${Status}' ntx)"
sectors() { awk '$3 == "nvme0n1" {print $6}' /proc/diskstats; }
stat_of() { sed -n "s/^ *\"$1\": *\"\{0,1\}\([^\",]*\)\"\{0,1\},*$/\1/p" /stats | head -n 1; }
cat /m.gguf >/dev/null # now it is in the page cache: only direct reads use the drive
before=$(sectors)
sh /what >/text 2>/err
echo "guest: ended with $?"
after=$(sectors)
sed 's/^/text: /' /text
cat /err
echo "guest: read $(stat_of bytes_read) bytes, the drive gave $(((after - before) * 512))"
echo "guest: kernels $(stat_of kernel)"
dpkg --purge ntx >/dpkg.log 2>&1 || cat /dpkg.log
echo "guest: purged, $(find /usr /etc -name 'ntx*' | wc -l) files left"
echo "guest: Linux $(uname -r) on $(uname -m), pages of $(getconf PAGESIZE) bytes"
cd /checkout || off
n=0
while read -r command; do
    n=$((n + 1))
    eval "$command" >"/new.$n" 2>"/err.$n" </dev/null
    echo "guest: newcomer's $n ended with $?"
    sed "s/^/new $n: /" "/new.$n"
    sed "s/^/err $n: /" "/err.$n"
done <newcomer
off
