#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The .deb on a clean Debian. debootstrap makes a root of this machine's release; apt installs the package there with
# its dependencies; a model writes text, man pages and completion work, the user and the directories exist; after a
# purge nothing is left.
#
# Takes minutes and packages from the network: part of tests/run --long. All mounts are in a namespace of its own.
. "$(dirname "$0")/../../lib/test.sh"
[ "${NTX_LONG:-}" ] || skip "part of tests/run --long (NTX_LONG is set there)"
[ "$(id -u)" = 0 ] || skip "needs root"
command -v debootstrap cpack dpkg-shlibdeps >/dev/null || skip "no debootstrap, cpack or dpkg-shlibdeps"
sanitized && skip "a package of sanitized programs is no package"
unshare --mount --pid --fork true 2>/dev/null || skip "no namespaces"
# shellcheck disable=SC1091
suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
root=$tmp/root
debootstrap --variant=minbase --include=systemd,bash-completion "$suite" "$root" >"$tmp/log" 2>&1 ||
    skip "debootstrap of '$suite' fails here: $(tail -n 1 "$tmp/log")"
(cd "$NTX_BUILD" && cpack -B "$tmp/pkg") >"$tmp/log" 2>&1 || fail "cpack: $(tail -n 5 "$tmp/log")"
cp "$tmp"/pkg/ntx_*.deb "$root/ntx.deb"
model "$root/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 3
ntx run "$root/m.gguf" "Once upon a time" --raw --ignore-eos -n 16 --ram 14M --ctx 64 --quiet >"$tmp/want" ||
    fail "run here"
# minbase leaves documentation out of what apt unpacks
rm -f "$root"/etc/dpkg/dpkg.cfg.d/*excludes*
cp /etc/resolv.conf "$root/etc/resolv.conf" 2>/dev/null

# there COMMAND: in the root, with a /proc of its own; PID 1 of it is this shell, and all ends with it
there() {
    unshare --mount --propagation private --pid --fork --kill-child bash \
        -c 'mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/run" && mount -t tmpfs tmpfs "$0/tmp" && shift 0 &&
        exec chroot "$0" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive bash -c "$1"' "$root" "$1"
}
# Its dependencies come first, so that the tree before and after is compared for this package alone.
there "apt-get update -q && apt-get install -q -y --no-install-recommends man-db &&
    apt-get satisfy -q -y --no-install-recommends '$(dpkg-deb -f "$root/ntx.deb" Depends)'" >"$tmp/log" 2>&1 ||
    fail "apt-get satisfy: $(tail -n 20 "$tmp/log")"
users='^/etc/(\.pwd\.lock|(passwd|group|shadow|gshadow)-?) ' # they stay
tree() {
    find "$root" -xdev -printf '/%P %y %m %u %l\n' | grep -Ev '^/var/(log|cache/(apt|man|ldconfig)|lib/(apt|dpkg))/' |
        grep -Ev "$users" | sort
}
tree >"$tmp/before"
there 'apt-get install -q -y --no-install-recommends /ntx.deb' >"$tmp/log" 2>&1 ||
    fail "apt-get install: $(tail -n 20 "$tmp/log")"
grep -q 'upgraded, 1 newly installed' "$tmp/log" || fail "ntx alone was to be installed: $(cat "$tmp/log")"
# HOME=/tmp: a purge leaves the caches of users, so none may lie in the root.
there \
    'ntx --version &&
    HOME=/tmp ntx run /m.gguf "Once upon a time" --raw --ignore-eos -n 16 --ram 14M --ctx 64 --quiet' \
    >"$tmp/got" 2>"$tmp/err" || fail "ntx there: $(cat "$tmp/err")"
sed -i 1d "$tmp/got"
same "$tmp/want" "$tmp/got" "the text there"
there 'getent passwd ntx && getent group ntx' >"$tmp/user" || fail "no user or group ntx"
there 'systemd-tmpfiles --create ntx.conf && stat -c "%U:%G %a" /run/ntx /var/lib/ntx' >"$tmp/dirs" ||
    fail "tmpfiles: $(cat "$tmp/dirs")"
[ "$(sort -u "$tmp/dirs")" = "ntx:ntx 750" ] || fail "directories: $(cat "$tmp/dirs")"
there \
    'for p in ntx ntx-run ntx-top; do man -w $p || exit 1; done; man ntx-run | col -b | grep -e --ram' >"$tmp/man" \
    2>&1 || fail "man pages: $(cat "$tmp/man")"
there \
    '. /usr/share/bash-completion/bash_completion
    . /usr/share/bash-completion/completions/ntx
    COMP_WORDS=(ntx ru) COMP_CWORD=1
    _ntx
    echo "${COMPREPLY[@]}"' >"$tmp/completed" || fail "completion"
[ "$(cat "$tmp/completed")" = run ] || fail "'ntx ru' is completed to '$(cat "$tmp/completed")'"
there \
    'systemd-analyze verify /usr/lib/systemd/system/ntx.target /usr/lib/systemd/system/ntx-*.service' >"$tmp/units" \
    2>&1 || fail "units: $(cat "$tmp/units")"
# enabled and used, then purged
there 'systemctl enable ntx.target && mkdir -p /var/cache/ntx/cuda /var/lib/ntx/models &&
    touch /var/cache/ntx/cuda/code \
    /var/lib/ntx/models/m.gguf' >"$tmp/log" 2>&1 || fail "enable: $(cat "$tmp/log")"
[ -L "$root/etc/systemd/system/multi-user.target.wants/ntx.target" ] || fail "not enabled: $(cat "$tmp/log")"
there 'apt-get purge -q -y ntx' >"$tmp/log" 2>&1 || fail "purge: $(cat "$tmp/log")"
tree >"$tmp/after"
diff "$tmp/before" "$tmp/after" >"$tmp/diff" || fail "left after a purge: $(cat "$tmp/diff")"
echo "installed on a clean $suite: writes the same text, $(wc \
    -l <"$tmp/units") complaints about units, nothing left after purge"
