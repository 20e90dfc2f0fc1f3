#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# systemd_root.sh STAGE: becomes PID 1 of a machine of its own, for systemd_test.sh. Runs in new namespaces of every
# kind but user. The machine's files are this one's, read-only; all that is writable is in tmpfs. None of this machine's
# own units, generators, tmpfiles or sysctl settings run, since those would empty the real /tmp at boot. All of this is
# checked before systemd is started.
set -eu
stage=$1
die() { echo "systemd_root: $*" >&2; exit 1; }
[ "$$" = 1 ] || die "not PID 1 of a namespace"
[ "$(readlink /proc/self/ns/mnt)" != "$NTX_OUTER_MNT" ] || die "not in a mount namespace of its own"
mount --make-rprivate /
new=$stage/root
mount --rbind / "$new"
mount --make-rprivate "$new"
# deepest first; what cannot be made read-only is unmounted; what is below another mount, as binfmt_misc is below the
# new /proc, has no path
awk -v p="$new" '$5 == p || index($5, p "/") == 1 {print $5}' /proc/self/mountinfo | sort -ru | while read -r m; do
    mount -o remount,bind,ro "$m" 2>/dev/null || [ "$(stat -c %d "$m")" = "$(stat -c %d "$m/..")" ] || umount -l "$m" ||
        die "$m stays writable"
done
etc=$(mktemp -d)
cp -a /etc/. "$etc/"
for d in tmp run var home root opt etc dev/shm mnt sys/fs/cgroup; do
    [ ! -d "$new/$d" ] || mount -t tmpfs -o mode=755 tmpfs "$new/$d"
done
# processes are those of this machine, the kernel settings are not
mount -t proc proc "$new/proc"
for f in sys sysrq-trigger irq bus fs; do
    [ ! -e "$new/proc/$f" ] || { mount --bind "$new/proc/$f" "$new/proc/$f" &&
        mount -o remount,bind,ro "$new/proc/$f"; }
done
cp -a "$etc/." "$new/etc/"
rm -rf "$etc"
mkdir -p "$new"/var/{lib,log,tmp,cache} "$new"/run/{lock,old}
chmod 1777 "$new"/{tmp,var/tmp,dev/shm}
# A cgroup tree that begins at ours, with no controllers: what systemd needs to follow processes.
if [ "$NTX_CGROUP" = 2 ]; then
    mount -t cgroup2 cgroup2 "$new/sys/fs/cgroup"
else
    mkdir "$new/sys/fs/cgroup/systemd"
    mount -t cgroup -o none,name=systemd cgroup "$new/sys/fs/cgroup/systemd"
fi
mkdir -p "$stage/install/opt" && cp -a "$stage/install/opt/." "$new/opt/"
cp "$stage"/m.gguf "$new/run/m.gguf"
cd "$new"
pivot_root . run/old
umount -l /run/old
cd /

# If anything outside of tmpfs is writable, do not boot.
for d in / /usr /bin /lib /boot /srv /proc/sys/kernel /sys/kernel /dev; do
    [ ! -d "$d" ] || ! touch "$d/.ntx-probe" 2>/dev/null || die "$d is writable"
done
[ ! -w /proc/sys/vm/swappiness ] || ! sh -c 'cat /proc/sys/vm/swappiness >/proc/sys/vm/swappiness' 2>/dev/null ||
    die "/proc/sys is writable"
for d in /tmp /var/tmp /run /home /root /etc; do
    [ ! -d "$d" ] || [ "$(stat -f -c %T "$d")" = tmpfs ] || die "$d is not tmpfs"
done
[ -z "$(ls -A /tmp)" ] || die "/tmp is somebody's"

[ "${NTX_DRY:-}" = "" ] || { echo "contained"; exit 0; }

# Users: alice may use ntx, mallory may not. No user of the host exists here.
# The user ntx comes from the installed sysusers file.
printf '%s\n' 'root:x:0:0::/root:/bin/sh' 'nobody:x:65534:65534::/nonexistent:/bin/false' \
    'alice:x:4001:4001::/home/alice:/bin/sh' 'mallory:x:4002:4002::/home/mallory:/bin/sh' >/etc/passwd
printf '%s\n' root:x:0: adm:x:4: systemd-journal:x:990: nogroup:x:65534: alice:x:4001: mallory:x:4002: >/etc/group
rm -f /etc/shadow /etc/gshadow /etc/nsswitch.conf
printf 'passwd: files\ngroup: files\n' >/etc/nsswitch.conf
SYSTEMD_LOG_LEVEL=err systemd-sysusers /opt/ntx/lib/sysusers.d/ntx.conf
sed -i 's/^\(ntx:[^:]*:[^:]*:\).*/\1alice/' /etc/group
mkdir -m 700 /home/alice
mv /run/m.gguf /home/alice/m.gguf
chown -R 4001:4001 /home/alice

# Units: those of ntx, journald, and the targets that they depend on, which have no dependences here.
units=/run/ntx-units
mkdir -p $units /run/none /run/systemd/journald.conf.d
printf '[Journal]\nStorage=volatile\nAudit=no\nReadKMsg=no\nForwardToConsole=no\n' \
    >/run/systemd/journald.conf.d/ntx.conf
cp /opt/ntx/lib/systemd/system/ntx* $units/
for t in basic sysinit shutdown umount final sockets local-fs local-fs-pre multi-user default; do
    printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' $t >$units/$t.target
done
for u in systemd-journald.service systemd-journald.socket; do
    cp -L /lib/systemd/system/$u $units/ || die "no $u here"
done
printf 'Wants=systemd-journald.service\n' >>$units/default.target
systemctl --version >/run/systemd-version
exec env -i container=lxc PATH=/usr/sbin:/usr/bin:/sbin:/bin SYSTEMD_UNIT_PATH=$units SYSTEMD_GENERATOR_PATH=/run/none \
    SYSTEMD_ENVIRONMENT_GENERATOR_PATH=/run/none \
    /lib/systemd/systemd --system --unit=default.target --log-target=console --log-level=notice --show-status=0
