#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Emulates a 64-bit Arm machine by qemu-system-aarch64: a Cortex-A76 with an NVMe drive, Debian's kernel and packages.
# dpkg installs ntx's package for arm64 there and finds its dependencies. The pipeline runs by io_uring and O_DIRECT,
# and writes the same text as this machine. The test then repeats this on the next release's kernel with pages of
# 16 KiB. It takes minutes: part of tests/run --long. NTX_ARM64_DEB: an existing package to test.
. "$(dirname "$0")/../../lib/test.sh"
. "$(dirname "$0")/lib.sh"
[ "${NTX_LONG:-}" ] || skip "part of tests/run --long (NTX_LONG is set there)"
PATH=/usr/sbin:/usr/bin:/sbin:/bin
for tool in qemu-system-aarch64 mke2fs cpack dpkg-shlibdeps busybox modprobe depmod debugfs; do
    command -v $tool >/dev/null || skip "no $tool"
done
sanitized && skip "the guest's programs are not sanitized"
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
run='"Once upon a time" --raw --temp 0 -n 24 --ram 14M --ctx 64 --draft off'

# ---- the package
arm64_configured busybox-static linux-image-cloud-arm64 dpkg tar dash libc-bin bash coreutils mawk procps
deb=${NTX_ARM64_DEB:-}
if [ -z "$deb" ]; then
    arm64_build all
    (cd "$arm64_dir" && cpack -B "$tmp/pkg") >"$tmp/log" 2>&1 || fail "cpack: $(tail -n 5 "$tmp/log")"
    deb=$(echo "$tmp"/pkg/ntx_*_arm64.deb)
fi
[ -e "$deb" ] && [ "$(dpkg-deb -f "$deb" Architecture)" = arm64 ] || fail "no package for arm64: $(ls "$tmp/pkg")"
depends=$(dpkg-deb -f "$deb" Depends | tr , '\n' | sed 's/|.*//;s/(.*//;s/ //g' | paste -sd,)
[ -d "$arm64_root.apt/dpkg" ] || skip "the libraries were not unpacked by deploy/arm64-root"
arm64_build ntx_installed ntx-mkmodel
echo "package: $(basename "$deb"), depends on $depends"
eval "ntx run '$NTX_SOURCE/models/demo.gguf' $run --quiet" >"$tmp/want" || fail "run here"

# ---- a newcomer's commands: those of README.md, with a smaller model and fewer tokens; then daemons
sed -n '/^## Quick start/,/^`quickstart/s/^    \([^ ].*[^ ]\)   .*$/\1/p' "$NTX_SOURCE/README.md" >"$tmp/four"
[ "$(sed 's/ .*//' "$tmp/four" | sort | uniq -c | xargs)" = "3 build/bin/ntx 1 deploy/quickstart" ] ||
    fail "README.md's quick start: $(cat "$tmp/four")"
{
    sed 's|MODEL.gguf|models/demo.gguf|;s|\(ntx doctor\).*|\1 --seconds 4|;s|\(ntx run .*\)|\1 -n 32|' "$tmp/four"
    echo 'build/bin/ntx up models/demo.gguf --ram 14M --ctx 64 --draft off &' \
        'until build/bin/ntx status; do sleep 1; done' # one line: a line is a command
    echo "build/bin/ntx generate ${run%% --ram*}"
    echo 'build/bin/ntx stop && wait'
} >"$tmp/newcomer"

# ---- kernels: that of this release, and that of the next one with pages of 16 KiB
kernels=("$arm64_root")
case $suite in
bookworm) next=trixie ;;
*) next=$suite ;;
esac
if NTX_SUITE=$next "$NTX_SOURCE/deploy/arm64-root" "$arm64_dir.root.16k" linux-image-arm64-16k >"$tmp/log" 2>&1; then
    kernels+=("$arm64_dir.root.16k")
else
    left_out "no kernel with pages of 16 KiB: $(tail -n 1 "$tmp/log")"
fi

# initramfs ROOT: $tmp/initramfs: busybox, the modules for NVMe and ext4, and an init that mounts the drive
initramfs() {
    local at=$tmp/early version m
    version=$(cd "$1/lib/modules" && echo *)
    rm -rf "$at" && mkdir -p "$at"/{bin,dev,proc,new}
    cp "$arm64_root/bin/busybox" "$at/bin/"
    depmod -b "$1" "$version" || fail "depmod of $version"
    modprobe -d "$1" -S "$version" -a --show-depends nvme ext4 crc32c_generic 2>/dev/null |
        awk '$1 == "insmod" && !($2 in seen) {seen[$2]; print $2}' >"$tmp/modules"
    { # the list lacks built-in modules
        echo '#!/bin/busybox sh'
        while read -r m; do
            case $m in
            *.xz) xz -dc "$m" >"$at/$(basename "${m%.xz}")" ;;
            *) cp "$m" "$at/" ;;
            esac
            echo "/bin/busybox insmod /$(basename "${m%.xz}")"
        done <"$tmp/modules"
        cat <<'END'
/bin/busybox mount -t devtmpfs dev /dev
n=0
until [ -e /dev/nvme0n1 ] || [ $n = 600 ]; do /bin/busybox sleep 0.1; n=$((n + 1)); done
/bin/busybox mount -t ext4 /dev/nvme0n1 /new
/bin/busybox mount --move /dev /new/dev
exec /bin/busybox switch_root /new /guest-init
END
    } >"$at/init"
    chmod 755 "$at/init"
    (cd "$at" && find . | busybox cpio -o -H newc 2>/dev/null | gzip -1) >"$tmp/initramfs"
}

# guest ROOT: runs the guest with that kernel until it is off; its output is in $tmp/said
guest() {
    initramfs "$1"
    timeout -k 5 2700 qemu-system-aarch64 -machine virt -accel tcg -cpu cortex-a76 -smp 2 -m 2G -nodefaults \
        -display none -no-reboot -serial stdio \
        -drive "file=$image,if=none,id=drive,format=raw,cache=unsafe,aio=threads" -device nvme,drive=drive,serial=ntx \
        -device virtio-rng-pci \
        -kernel "$1"/boot/vmlinuz-* -initrd "$tmp/initramfs" \
        -append "console=ttyAMA0 quiet panic=-1" <&- >"$tmp/console" 2>&1
    sed 's/\r//g;s/\x1b\[[0-9;]*[A-Za-z]//g' "$tmp/console" >"$tmp/said"
    grep -q '^guest: end' "$tmp/said" || fail "the guest did not come to its end: $(tail -n 30 "$tmp/said")"
}

# ---- the drive: the packages without kernels and what compilers take of them, dpkg's knowledge of them, ntx and a
# model
image=$tmp/drive.img
mkdir -p "$tmp/guest/usr" && cp -a "$arm64_root"/{bin,lib,sbin,etc} "$tmp/guest/" &&
    tar -c -C "$arm64_root/usr" --exclude='*.a' --exclude=lib/modules --exclude=include --exclude=share . |
    tar -x -C "$tmp/guest/usr"
mkdir -p "$tmp/guest"/{dev,proc,sys,run,tmp,root} "$tmp/guest/var/lib/dpkg"/{info,updates,triggers}
ln -sf dash "$tmp/guest/bin/sh"
cp "$arm64_root.apt/dpkg/status" "$tmp/guest/var/lib/dpkg/"
for f in "$arm64_root.apt/dpkg/info"/*.list; do
    sed "s|^$arm64_root||;s|^$|/.|" "$f" >"$tmp/guest/var/lib/dpkg/info/$(basename "$f")"
done
echo 1 >"$tmp/guest/var/lib/dpkg/info/format"
cp "$(dirname "$0")/guest_init.sh" "$tmp/guest/guest-init" && chmod 755 "$tmp/guest/guest-init" &&
    cp "$deb" "$tmp/guest/ntx.deb" && cp "$NTX_SOURCE/models/demo.gguf" "$tmp/guest/m.gguf"
echo "ntx run /m.gguf $run --source uring --stats /stats" >"$tmp/guest/what"
at=$tmp/guest/checkout
mkdir -p "$at/models" "$tmp/guest/cross" && cp -r "$NTX_SOURCE/deploy" "$at/" &&
    cp "$NTX_SOURCE/models/demo.gguf" "$at/models/" && cp "$tmp/newcomer" "$at/"
for f in "$arm64_dir"/bin/ntx*; do aarch64-linux-gnu-strip -o "$tmp/guest/cross/$(basename "$f")" "$f" ||
    fail "strip $f"; done
cp "$(dirname "$0")/guest_cmake.sh" "$tmp/guest/usr/bin/cmake" && chmod 755 "$tmp/guest/usr/bin/cmake" &&
    ln -sf mawk "$tmp/guest/usr/bin/awk"
mke2fs -q -t ext4 -d "$tmp/guest" "$image" 2G >"$tmp/log" 2>&1 || fail "mke2fs: $(cat "$tmp/log")"
rm -rf "$tmp/guest"

for k in "${kernels[@]}"; do
    guest "$k"
    about=$(sed -n 's/^guest: \(Linux .*\)/\1/p' "$tmp/said")
    sed -n 's/^text: //p' "$tmp/said" >"$tmp/got"
    same "$tmp/want" "$tmp/got" "the text there ($about): $(tail -n 20 "$tmp/said")"
    # O_DIRECT bypasses the page cache: the drive delivered as many bytes as ntx read.
    read -r asked came < <(sed -n 's/^guest: read \([0-9]*\) bytes, the drive gave \([0-9]*\).*/\1 \2/p' "$tmp/said")
    [ "${asked:-0}" -gt 100000000 ] || fail "$about: ntx read '${asked:-}' bytes: $(tail -n 20 "$tmp/said")"
    [ "$came" -ge "$asked" ] || fail "$about: $asked bytes were read, of them $came off the drive: not by O_DIRECT"
    grep -qx 'guest: kernels neon' "$tmp/said" || fail "$about: $(grep '^guest: kernels' "$tmp/said")"
    grep -qx 'guest: purged, 0 files left' "$tmp/said" || fail "$about: $(grep '^guest: purged' "$tmp/said")"
    # The newcomer's commands: each ended with 0 and printed something.
    n=0
    while read -r command; do
        n=$((n + 1))
        sed -n "s/^new $n: //p" "$tmp/said" >"$tmp/new.$n"
        grep -qx "guest: newcomer's $n ended with 0" "$tmp/said" ||
            fail "$about: $command: $(cat "$tmp/new.$n") $(grep "^guest: newcomer's" "$tmp/said")"
    done <"$tmp/newcomer"
    [ "$(sed '1,/^\$ build.bin.ntx run/d;/^== done/,$d' "$tmp/new.1" | wc -w)" -ge 20 ] &&
        grep -q '^== done' "$tmp/new.1" || fail "$about: quickstart's story: $(cat "$tmp/new.1")"
    grep -qi 'neon' "$tmp/new.2" || fail "$about: doctor: $(cat "$tmp/new.2")"
    grep -q 'tok/s\|tokens/s' "$tmp/new.3" || fail "$about: plan: $(cat "$tmp/new.3")"
    [ "$(wc -w <"$tmp/new.4")" -ge 10 ] || fail "$about: run: $(cat "$tmp/new.4")"
    same "$tmp/want" "$tmp/new.6" "the daemons' text there ($about): $(tail -n 20 "$tmp/said")"
    echo "$about: the same text, $asked bytes read by io_uring, $came off the drive"
done
grep -q '16384 bytes' <<<"$about" || [ ${#kernels[@]} = 1 ] || fail "pages of 16 KiB: $about"
finish "installed, run and purged on ${#kernels[@]} kernels"
