#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Removal leaves nothing. The package by dpkg in a root of its own (its scripts run with DPKG_ROOT): enabled, masked,
# used, then removed and purged; and `cmake --install` by deploy/uninstall. The tree is the one from before.
. "$(dirname "$0")/../../lib/test.sh"
sanitized && skip "a package of sanitized programs is no package"
[ "$(id -u)" = 0 ] || skip "needs root: dpkg sets owners"
root=$tmp/root
mkdir -p "$root"/usr/{bin,lib/systemd/system} "$root"/etc/systemd/system/multi-user.target.wants \
    "$root"/{run/systemd/system.control,var/{lib,cache}} "$root"/var/lib/dpkg/{info,updates,triggers}
: >"$root/var/lib/dpkg/status"
printf '%s\n' root:x:0:0::/root:/bin/sh >"$root/etc/passwd"
echo root:x:0: >"$root/etc/group"
for f in etc/systemd/system/multi-user.target.wants/other.service usr/bin/other usr/lib/systemd/system/other.service; do
    : >"$root/$f" # of others: the folder stays
done
tree() { (cd "$root" && find . -path ./var/lib/dpkg -prune -o -printf '%p %y %m %u %l\n' | grep -Ev "$1" | sort); }
users='^\./etc/(\.pwd\.lock|(passwd|group|shadow|gshadow)-?) ' # they stay; looked at below
tree "$users" >"$tmp/before"
used() { # what running leaves
    mkdir -p "$root"/var/{cache/ntx/cuda,lib/ntx/models/a} "$root"/run/ntx{,-gateway,-metrics} \
        "$root/run/systemd/system.control/ntx.slice.d"
    echo x | tee "$root/var/cache/ntx/cuda/code" "$root/var/lib/ntx/models/a/m.gguf" "$root/run/ntx/counters" \
        "$root/run/systemd/system.control/ntx.slice.d/50-MemoryMax.conf" >/dev/null
}

# ---- the package
if command -v cpack dpkg-deb systemctl systemd-sysusers >/dev/null; then
    (cd "$NTX_BUILD" && cpack -D CPACK_DEBIAN_COMPRESSION_TYPE=none -D CPACK_DEBIAN_PACKAGE_SHLIBDEPS=OFF \
        -B "$tmp/pkg") \
        >"$tmp/log" 2>&1 || fail "cpack: $(cat "$tmp/log")"
    dpkg_there() {
        dpkg --root="$root" --log=/dev/null --force-script-chrootless --force-depends "$@" >"$tmp/log" 2>&1
    }
    dpkg_there -i "$tmp"/pkg/ntx_*.deb || fail "dpkg -i: $(cat "$tmp/log")"
    grep -q ^ntx: "$root/etc/passwd" && grep -q ^ntx-gateway: "$root/etc/passwd" && grep -q ^ntx: "$root/etc/group" ||
        fail "users: $(cat "$root/etc/passwd")"
    [ -d "$root/var/lib/ntx" ] || fail "no /var/lib/ntx: $(cat "$tmp/log")"
    systemctl --root="$root" enable ntx.target >"$tmp/log" 2>&1 || fail "enable: $(cat "$tmp/log")"
    [ -L "$root/etc/systemd/system/multi-user.target.wants/ntx.target" ] || fail "not enabled: $(cat "$tmp/log")"
    systemctl --root="$root" mask ntx-metrics.service >"$tmp/log" 2>&1 || fail "mask: $(cat "$tmp/log")"
    used
    # A removal keeps configuration, models and that it is enabled.
    dpkg_there --remove ntx || fail "remove: $(cat "$tmp/log")"
    for f in etc/ntx/ntx.conf var/lib/ntx/models/a/m.gguf; do
        [ -e "$root/$f" ] || fail "a removal took $f"
    done
    [ -L "$root/etc/systemd/system/multi-user.target.wants/ntx.target" ] || fail "a removal disabled the service"
    [ ! -e "$root/usr/bin/ntx" ] || fail "a removal left programs"
    dpkg_there --purge ntx || fail "purge: $(cat "$tmp/log")"
    tree "$users" >"$tmp/after"
    diff "$tmp/before" "$tmp/after" >"$tmp/diff" || fail "left after a purge: $(cat "$tmp/diff")"
    [ "$(sed 's/:.*//' "$root/etc/passwd" | sort | xargs)" = "ntx ntx-gateway root" ] ||
        fail "users after a purge: $(cat "$root/etc/passwd")"
else
    left_out "no cpack, dpkg-deb or systemd here"
fi

# ---- cmake --install
for prefix in /usr/local /opt/ntx; do
    conf=$([ $prefix = /usr/local ] || echo $prefix)/etc/ntx/ntx.conf
    DESTDIR=$root cmake --install "$NTX_BUILD" --prefix $prefix >"$tmp/log" 2>&1 || fail "cmake: $(cat "$tmp/log")"
    [ -e "$root$prefix/bin/ntx" ] && [ -e "$root$conf" ] || fail "cmake --install --prefix $prefix"
    used
    echo "# mine" >>"$root$conf"
    DESTDIR=$root "$NTX_SOURCE/deploy/uninstall" --prefix $prefix "$NTX_BUILD" >"$tmp/log" 2>&1 ||
        fail "uninstall: $(cat "$tmp/log")"
    grep -q "kept, since it was changed: $root$conf" "$tmp/log" && [ -e "$root$conf" ] ||
        fail "a changed ntx.conf: $(cat "$tmp/log")"
    [ -e "$root/var/lib/ntx/models/a/m.gguf" ] || fail "uninstall took a model"
    DESTDIR=$root "$NTX_SOURCE/deploy/uninstall" --prefix $prefix --purge "$NTX_BUILD" >"$tmp/log" 2>&1 ||
        fail "uninstall --purge: $(cat "$tmp/log")"
    # empty folders that others use too may stay
    tree "$users" | grep -Ev ' d ' >"$tmp/after"
    diff <(grep -Ev ' d ' "$tmp/before") "$tmp/after" >"$tmp/diff" || fail "left of $prefix: $(cat "$tmp/diff")"
    ! tree "$users" | grep ntx || fail "folders are left of $prefix"
done
"$NTX_SOURCE/deploy/uninstall" "$tmp/none" >"$tmp/log" 2>&1 && fail "a build directory that is none was taken"
grep -q 'is no build directory' "$tmp/log" || fail "what it says then: $(cat "$tmp/log")"
finish "the package and cmake --install leave nothing"
