# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# machine.sh: a machine made of namespaces whose PID 1 is systemd (systemd_root.sh). Source it after lib.sh.
# This build is installed below /opt/ntx, and m.gguf is in alice's home; alice is in the group ntx, mallory is not.
# `inside COMMAND` runs there as root, `as WHO COMMAND` as another user. The test is skipped where that is impossible.
here=$(dirname "$(realpath "$0")")
[ "$(id -u)" = 0 ] || skip "needs root"
[ -x /lib/systemd/systemd ] && command -v nsenter systemd-sysusers >/dev/null || skip "no systemd here"
sanitized && skip "sanitizers do not run with the units' restrictions"
unshare --fork --pid --mount --uts --ipc --net --cgroup --mount-proc true 2>/dev/null ||
    skip "namespaces are refused here"

# A cgroup of its own, in the hierarchy by which systemd follows processes.
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    cgroup=/sys/fs/cgroup/ntx-test-$$ NTX_CGROUP=2
elif [ -d /sys/fs/cgroup/systemd ]; then
    cgroup=/sys/fs/cgroup/systemd/ntx-test-$$ NTX_CGROUP=1
else
    skip "no cgroup hierarchy for systemd here"
fi
mkdir "$cgroup" 2>/dev/null || skip "cannot make a cgroup"
end_cgroup() { find "$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null; [ ! -e "$cgroup" ]; }
cleanup+=("wait_for 10 end_cgroup")

mkdir "$tmp/root" "$tmp/install"
DESTDIR=$tmp/install cmake --install "$NTX_BUILD" --prefix /opt/ntx >"$tmp/log" 2>&1 ||
    fail "cmake --install: $(cat "$tmp/log")"
cp "$NTX_BUILD/tests/libslow_write.so" "$tmp/install/opt/ntx/lib/"
model "$tmp/m.gguf" --ctx 1024 --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0 --seed 3
NTX_OUTER_MNT=$(readlink /proc/self/ns/mnt)
export NTX_OUTER_MNT NTX_CGROUP
(
    echo $BASHPID >"$cgroup/cgroup.procs"
    exec unshare --fork --kill-child --pid --mount --uts --ipc --net --cgroup --mount-proc bash \
        "$here/systemd_root.sh" "$tmp"
) >"$tmp/boot.log" 2>&1 &
outer=$!
init=
cleanup=('kill -9 $init 2>/dev/null; wait $outer 2>/dev/null' "${cleanup[@]}")
wait_for 20 eval 'init=$(pgrep -P $outer) || gone $outer' && [ -n "$init" ] || fail "no PID 1: $(cat "$tmp/boot.log")"
inside() {
    nsenter -t "$init" -m -p -u -i -n -C -r -w/ env -i PATH=/opt/ntx/bin:/usr/sbin:/usr/bin:/sbin:/bin \
        LC_ALL=C.UTF-8 "$@"
}
as() { local who=$1; shift; inside setpriv --reuid "$who" --regid "$who" --init-groups env HOME=/home/"$who" "$@"; }
state() { inside systemctl show -p "$2" --value "$1"; }
journal() { inside journalctl --no-pager -q "$@"; }
wait_for 30 eval \
    'gone $init || [ "$(cat /proc/$init/comm)" = systemd ] &&
        inside systemctl is-active -q default.target 2>/dev/null' && ! gone "$init" ||
    fail "systemd does not come up: $(cat "$tmp/boot.log")"
[ -z "$(find "$tmp/root" -xdev -maxdepth 2 -name alice 2>/dev/null)" ] || fail "the test's files are outside"

