#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests named below on another kernel with cgroups of version 2: a QEMU machine with an NVMe drive and Debian's
# Linux 6.1, the oldest supported kernel. It has no cgroups of version 1, like a default Debian 12 or Ubuntu 24.04.
# Part of tests/run --long. It uses /dev/kvm where possible; else the machine is emulated, and takes ten times as long.
. "$(dirname "$0")/../../lib/test.sh"
here=$(dirname "$(realpath "$0")")
PATH=/usr/sbin:/usr/bin:/sbin:/bin # the guest gets the distribution's own programs
scripts="system/pipeline/memory_test.sh system/pipeline/quarantine_test.sh system/pipeline/runs_out_test.sh"
scripts+=" system/pipeline/cache_test.sh"
programs="test_iod-late-dma test_weights-dma test_shm-memlimit"
[ "${NTX_LONG:-}" ] || skip "part of tests/run --long (NTX_LONG is set there)"
sanitized && skip "a sanitizer's own memory is beyond the caps that are tried"
command -v qemu-system-x86_64 mke2fs ldd dpkg >/dev/null && [ -x /bin/busybox ] ||
    skip "needs qemu-system-x86, busybox-static and e2fsprogs"

# ---- the kernel: NTX_GUEST_KERNEL, or that of Debian's cloud package, which has NVMe and ext4 built in
kernel=${NTX_GUEST_KERNEL:-}
if [ -z "$kernel" ]; then
    package=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null |
        sed -n 's/^ *Depends: \(linux-image-6\.1\..*\)/\1/p' | head -1)
    [ "$package" ] || skip "this distribution has no package of Debian's Linux 6.1; NTX_GUEST_KERNEL may name its image"
    mkdir "$tmp/kernel" && chmod 755 "$tmp" "$tmp/kernel"
    (cd "$tmp/kernel" && apt-get download -q "$package" && dpkg -x ./*.deb .) >"$tmp/log" 2>&1 ||
        skip "cannot get $package: $(tail -n 1 "$tmp/log")"
    kernel=$(echo "$tmp"/kernel/boot/vmlinuz-*)
fi

# ---- its drive: this machine's programs with their libraries, ntx, the tests
root=$tmp/root
mkdir -p "$root"/{bin,usr,dev,proc,sys,run,tmp,root,ntx/build/tests,ntx/tests/system} && ln -s ../bin "$root/usr/bin"
needs() { # FILE...: the libraries that they are linked to
    ldd "$@" 2>/dev/null | grep -v ':$' | grep -o '/[^ ]*\.so[^ ]*' | sort -u |
        while read -r lib; do [ -e "$root$lib" ] || { mkdir -p "$root$(dirname "$lib")" &&
        cp -L "$lib" "$root$lib"; }; done
}
into() { cp -L "$1" "$root/${2:-bin/}" && needs "$1"; } # PROGRAM [TARGET]
into /bin/busybox
for p in basename bash cat chmod cmp cp cut date dd df dirname env fincore find findmnt grep head id ln ls mkdir \
    mktemp mount nm pgrep python3 realpath rm rmdir sed seq setsid sleep sort stat sync tail timeout touch tr tee true \
    uname umount unshare wc xargs; do
    into "$(type -P $p)" || fail "no $p to take along"
done
into "$(type -P mawk || type -P gawk)" bin/awk
ln -s bash "$root/bin/sh"
libraries=$(python3 -c 'import os; print(os.path.dirname(os.__file__))')
mkdir -p "$root$libraries" && cp -a "$libraries/." "$root$libraries/" &&
    rm -rf "$root$libraries"/{test,idlelib,site-packages,dist-packages}
needs "$libraries"/lib-dynload/*.so
cp -a "$NTX_BUILD/bin" "$root/ntx/build/"
rm -f "$root/ntx/build/bin/libntx-cuda.so"
for p in "$NTX_BIN"/ntx{,-computed,-iod,-predictor,-mkmodel}; do into "$p" ntx/build/bin/ || fail "$p"; done
for p in $programs; do into "$NTX_BUILD/tests/$p" ntx/build/tests/ || fail "$p is not built"; done
cp "$NTX_BUILD"/tests/*.so "$root/ntx/build/tests/" 2>/dev/null
cp -a "$NTX_SOURCE/tests/system/pipeline" "$root/ntx/tests/system/" && cp -a "$NTX_SOURCE/tests/lib" "$root/ntx/tests/"
printf 'root:x:0:0::/root:/bin/sh\n' >"$root/etc-passwd" && mkdir -p "$root/etc" &&
    mv "$root/etc-passwd" "$root/etc/passwd"
cp "$here/init.sh" "$root/init" && chmod 755 "$root/init"
echo "scripts='$scripts' programs='$programs'" >"$root/ntx/what"
mke2fs -q -t ext4 -d "$root" "$tmp/drive.img" 3G >"$tmp/log" 2>&1 || fail "mke2fs: $(cat "$tmp/log")"
rm -rf "$root"

# ---- run it
accel=tcg cpu=max limit=3000
kvm_works() {
    (exec 3<>/dev/kvm) && ulimit -c 0 &&
        timeout 10 qemu-system-x86_64 -accel kvm -cpu host -display none -nodefaults -S -monitor stdio <<<quit
}
if (kvm_works) >/dev/null 2>&1; then
    accel=kvm cpu=host limit=600
fi
timeout -k 5 $limit qemu-system-x86_64 -accel $accel -cpu $cpu -smp 2 -m 3G -nodefaults -display none -no-reboot \
    -serial stdio \
    -drive "file=$tmp/drive.img,if=none,id=drive,format=raw,cache=none,aio=threads" \
    -device nvme,drive=drive,serial=ntx \
    -kernel "$kernel" -append "root=/dev/nvme0n1 rw init=/init console=ttyS0 quiet panic=-1" <&- >"$tmp/console" 2>&1
sed 's/\r//g;s/\x1b\[K//g' "$tmp/console" >"$tmp/said"
grep -q '^guest: end' "$tmp/said" || fail "the guest ($accel) did not come to its end: $(tail -n 30 "$tmp/said")"
grep -q '^guest: Linux 6\.1\.' "$tmp/said" || [ "${NTX_GUEST_KERNEL:-}" ] ||
    fail "another kernel: $(grep '^guest: Linux' "$tmp/said")"
for t in $scripts $programs; do
    rc=$(sed -n "s|^guest: $t ended with ||p" "$tmp/said")
    case $rc in
    0) echo "$t: $(grep -B1 "^guest: $t ended" "$tmp/said" | sed -n '1s/^guest: .*/passed/;1p')" ;;
    77) left_out "$t: $(grep -B1 "^guest: $t ended" "$tmp/said" | sed -n '1s/^skipped: //p')" ;;
    *) fail "$t ended with ${rc:-nothing}: $(grep -B15 "^guest: $t ended" "$tmp/said")" ;;
    esac
done
finish "$(sed -n 's/^guest: \(Linux .*\)/\1/p' "$tmp/said"), by $accel"
