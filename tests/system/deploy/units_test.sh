#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# cmake --install installs all files to their places, and systemd accepts the units.
. "$(dirname "$0")/../../lib/test.sh"
cmake --install "$NTX_BUILD" --prefix "$tmp/usr" >"$tmp/log" 2>&1 || fail "cmake --install: $(cat "$tmp/log")"
units=$tmp/usr/lib/systemd/system
for f in bin/ntx bin/ntx-top bin/ntx-computed bin/ntx-iod bin/ntx-predictor bin/ntx-metrics bin/ntx-gateway \
    lib/systemd/system/ntx-metrics.service lib/systemd/system/ntx-gateway.service lib/systemd/system/ntx.slice \
    lib/sysusers.d/ntx.conf etc/ntx/ntx.conf; do
    [ -s "$tmp/usr/$f" ] || fail "$f is not installed"
done
cmp "$NTX_SOURCE/deploy/ntx.conf" "$tmp/usr/etc/ntx/ntx.conf" || fail "ntx.conf differs"
for d in computed iod predictor; do
    u=$units/ntx-$d.service
    grep -q "^ExecStart=$tmp/usr/bin/ntx-$d " "$u" || fail "$u does not start $tmp/usr/bin/ntx-$d"
    for line in Type=notify User=ntx Slice=ntx.slice RuntimeDirectory=ntx StartLimitIntervalSec=0 RestartSec=20ms \
        LimitMEMLOCK=infinity NoNewPrivileges=yes CapabilityBoundingSet= ProtectSystem=strict \
        RestrictAddressFamilies=AF_UNIX; do
        grep -qx "$line" "$u" || fail "$u lacks $line"
    done
    if [ $d != computed ]; then
        # the whole line, as systemd joins it
        grep -q "^ExecStopPost=-/bin/sh .*/ntx-$d.end'\$" <(sed ':a; /\\$/ {N; s/\\\n/ /; ba}' "$u") ||
            fail "$u: it does not record how ntx-$d ended"
        grep -q '^SystemCallFilter=seccomp landlock_create_ruleset ' "$u" ||
            fail "$u: ntx-$d could not enter its sandbox"
    fi
    ! grep -q '@[a-z]*@' "$u" "$units/ntx-$d@.service" || fail "$u: a path is not filled in"
done
# The daemons of further models: the same, each in a directory of its own, and none of them is the first one's.
for d in computed iod predictor; do
    u=$units/ntx-$d@.service
    for line in RuntimeDirectory=ntx/place-%i Type=notify User=ntx Slice=ntx.slice PartOf=ntx.target; do
        grep -qx "$line" "$u" || fail "$u lacks $line"
    done
    [ $d = computed ] || grep -qx "BindsTo=ntx-computed@%i.service" "$u" || fail "$u is bound to another one"
    ! grep -n "%t/ntx \|%t/ntx/ntx" "$u" || fail "$u uses the first one's directory"
done
grep -q "^ExecStart=.* --runtime %t/ntx/place-%i .* --place %i\$" "$units/ntx-computed@.service" ||
    fail "ntx-computed@.service does not say its place"
grep -q -- "--config $tmp/usr/etc/ntx/ntx.conf" "$units/ntx-computed.service" ||
    fail "ntx-computed.service names another ntx.conf"

# An existing configuration is not overwritten.
echo "# mine" >"$tmp/usr/etc/ntx/ntx.conf"
cmake --install "$NTX_BUILD" --prefix "$tmp/usr" >"$tmp/log" 2>&1 || fail "a second cmake --install: $(cat "$tmp/log")"
[ "$(cat "$tmp/usr/etc/ntx/ntx.conf")" = "# mine" ] || fail "ntx.conf was overwritten"

# With DESTDIR, as packagers use it, the paths in the files are the final ones.
DESTDIR=$tmp/stage cmake --install "$NTX_BUILD" --prefix /usr >"$tmp/log" 2>&1 || fail "DESTDIR: $(cat "$tmp/log")"
grep -q "^ExecStart=/usr/bin/ntx-computed .*--config /etc/ntx/ntx.conf" \
    "$tmp/stage/usr/lib/systemd/system/ntx-computed.service" || fail "DESTDIR: paths"
[ -s "$tmp/stage/etc/ntx/ntx.conf" ] || fail "DESTDIR: no ntx.conf"

command -v systemd-analyze >/dev/null || skip "no systemd-analyze here"
SYSTEMD_UNIT_PATH="$units:" systemd-analyze verify --man=no "$units"/ntx.target "$units"/ntx.slice \
    "$units"/ntx-*.service \
    >"$tmp/verify" 2>&1 || fail "systemd-analyze verify: $(cat "$tmp/verify")"
! grep "$units" "$tmp/verify" || fail "systemd-analyze verify warns: $(cat "$tmp/verify")"
