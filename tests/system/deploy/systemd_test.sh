#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The installed service under systemd, which is PID 1 of a machine made of namespaces (systemd_root.sh). A member of the
# group ntx gets text while daemons are killed, an outsider is refused, and a stop leaves nothing behind.
. "$(dirname "$0")/../../lib/test.sh"
. "$(dirname "$0")/machine.sh"

# A wrong configuration: the unit fails for good, its status has the reason, and `ntx status` names the journal.
inside sh -c 'printf "[model]\nram = 640M\nctxx = 5\npath = m.gguf\n" >/opt/ntx/etc/ntx/ntx.conf'
inside systemctl start ntx.target
wait_for 20 eval '[ "$(state ntx-computed.service ActiveState)" = failed ]' ||
    fail "a wrong configuration: $(inside systemctl status ntx-computed; journal -n 20)"
inside systemctl status --no-pager --lines 20 ntx-computed >"$tmp/status"
grep -q "status=100" "$tmp/status" &&
    grep -q "ntx.conf:3: unknown key 'ctxx' in .model.; did you mean ctx" "$tmp/status" &&
    grep -q 'ntx.conf:4: path: ' "$tmp/status" && grep -q 'not started: .* has 2 errors' "$tmp/status" ||
    fail "systemctl status: $(cat "$tmp/status")"
grep -q '^ *Status: .*ntx.conf:3: ' "$tmp/status" || fail "the unit's status: $(cat "$tmp/status")"
[ "$(journal -u ntx-computed | grep -c 'not started:')" = 1 ] && [ "$(state ntx-computed.service NRestarts)" = 0 ] ||
    fail "it was started again: $(journal -u ntx-computed)"
# (As root: this machine has no D-Bus, by which others ask systemd.)
inside ntx status >"$tmp/out" 2>"$tmp/err" && fail "ntx status without daemons"
grep -q 'has failed (ntx-computed: exit status 100, a wrong configuration); .journalctl -u ntx-computed' "$tmp/err" ||
    fail "ntx status of a failed service: $(cat "$tmp/err")"

# Root checks as the service's user, who may not read this model; alice is told that root would see more.
inside sh -c 'cp /home/alice/m.gguf /var/lib/m.gguf && chmod 600 /var/lib/m.gguf &&
    printf "[model]\npath = /var/lib/m.gguf\nram = 640M\n" >/opt/ntx/etc/ntx/ntx.conf'
inside ntx config check /opt/ntx/etc/ntx/ntx.conf >"$tmp/out" 2>"$tmp/err" && fail "a model that ntx may not read"
grep -q '^/opt/ntx/etc/ntx/ntx.conf:2: path: /var/lib/m.gguf: Permission denied' "$tmp/err" ||
    fail "config check of a model that ntx may not read: $(cat "$tmp/err")"
as alice ntx config check /opt/ntx/etc/ntx/ntx.conf >"$tmp/out" 2>"$tmp/err"
grep -q '^note: as root' "$tmp/err" || fail "config check by alice: $(cat "$tmp/err")"
inside sh -c 'chmod 644 /var/lib/m.gguf' && inside ntx config check /opt/ntx/etc/ntx/ntx.conf >"$tmp/out" ||
    fail "config check of a good configuration"
inside rm /var/lib/m.gguf

inside sh -c 'printf "[model]\nram = 640M\n" >/opt/ntx/etc/ntx/ntx.conf'
inside systemctl start ntx.target ntx-computed || fail "start: $(journal -n 40)"
for d in computed iod predictor; do
    wait_for 20 eval '[ "$(state ntx-$d.service ActiveState)" = active ]' ||
        fail "ntx-$d is not active: $(journal -n 40)"
done
[ "$(inside stat -c '%U:%G %a' /run/ntx/ntx.sock)" = "ntx:ntx 660" ] ||
    fail "socket: $(inside stat -c '%U:%G %a' /run/ntx/ntx.sock)"

# All daemons are in one slice, with the limit of ntx.conf as it was at the last start.
for d in computed iod predictor; do
    case $(state ntx-$d.service ControlGroup) in
    */ntx.slice/ntx-$d.service) ;;
    *) fail "ntx-$d is in $(state ntx-$d.service ControlGroup)" ;;
    esac
done
[ "$(state ntx.slice MemoryMax)" = $(((640 + 64 + 10) << 20)) ] ||
    fail "limit of ntx.slice: $(state ntx.slice MemoryMax); $(journal -n 20)"
inside sh -c 'echo >/opt/ntx/etc/ntx/ntx.conf'
inside systemctl restart ntx.target || fail "restart: $(journal -n 20)"
[ "$(state ntx.slice MemoryMax)" = infinity ] || fail "limit of ntx.slice without ram: $(state ntx.slice MemoryMax)"

# The service itself cannot open the model's path.
inside systemctl show -p ProtectHome --value ntx-computed.service | grep -qx yes || fail "ProtectHome"
as alice ntx load /home/alice/m.gguf --ram 14M --ctx 64 --link nvme=40M >"$tmp/load" 2>&1 ||
    fail "load by descriptor: $(cat "$tmp/load"; journal -n 20)"
gen() { as alice ntx generate "Once upon a time" --raw --ignore-eos -n 24 --quiet; }
gen >"$tmp/want" 2>"$tmp/err" || fail "generate: $(cat "$tmp/err")"
[ -s "$tmp/want" ] || fail "no text"
as mallory ntx generate "Once" --raw -n 2 --quiet >"$tmp/out" 2>"$tmp/err" && fail "an outsider was served"
grep -qi 'permission\|group' "$tmp/err" || fail "an outsider is told: $(cat "$tmp/err")"
as mallory ntx-top --runtime /run/ntx --once >/dev/null 2>&1 && fail "an outsider reads the counters"
as alice ntx-top --runtime /run/ntx --once --interval 0.1 | grep -q 'random (llama' || fail "ntx-top of a member"

pid_of() { state "ntx-$1.service" MainPID; }
for d in iod predictor iod; do
    before=$(pid_of $d)
    gen >"$tmp/got" 2>"$tmp/err" &
    g=$!
    wait_for 10 eval 'as alice ntx status --json | grep -q "\"sessions\":1"' || fail "no session"
    inside kill -9 "$before"
    wait_for 10 eval 'now=$(pid_of $d); [ "$now" != 0 ] && [ "$now" != "$before" ]' ||
        fail "ntx-$d is not restarted: $(journal -n 20)"
    wait $g || fail "generate with a killed $d: $(cat "$tmp/err"; journal -n 20)"
    same "$tmp/want" "$tmp/got" "killed $d"
done

gen >"$tmp/got" 2>"$tmp/err" &
g=$!
wait_for 10 eval 'as alice ntx status --json | grep -q "\"sessions\":1"' || fail "no session"
before=$(pid_of computed)
inside kill -9 "$before"
wait $g && fail "the answer of a killed ntx-computed ended well"
[ "$(wc -l <"$tmp/err")" = 1 ] || fail "error text: $(cat "$tmp/err")"
wait_for 20 eval \
    'now=$(pid_of computed); [ "$now" != 0 ] && [ "$now" != "$before" ] && as alice ntx status >/dev/null 2>&1' ||
    fail "ntx-computed is not restarted: $(journal -n 30)"

# Alice's model is served again, though the service cannot open its path; systemd kept the descriptors.
# One model after another, and after each other.
served() { as alice ntx status --json >"$tmp/status" 2>/dev/null && grep -q "\"serving\":true" "$tmp/status"; }
gen >"$tmp/got" 2>"$tmp/err" || fail "generate after the death of computed: $(cat "$tmp/err"; journal -n 20)"
same "$tmp/want" "$tmp/got" "after the death of computed"
journal -u ntx-computed |
    grep -q 'had ended unexpectedly, and the model that it served is loaded again: /home/alice/m.gguf' ||
    fail "no word of the model that is loaded again: $(journal -n 20)"
for i in 1 2; do
    [ $i = 1 ] || as alice ntx load /home/alice/m.gguf --ram 14M --ctx 48 --quiet || fail "load"
    wait_for 20 served || fail "not served: $(cat "$tmp/status")"
    before=$(pid_of computed)
    inside kill -9 "$before"
    wait_for 20 eval 'now=$(pid_of computed); [ "$now" != 0 ] && [ "$now" != "$before" ] && served' ||
        fail "not served again, $i: $(cat "$tmp/status"; journal -n 30)"
    grep -q "\"ctx\":$((i == 1 ? 64 : 48))[,}]" "$tmp/status" ||
        fail "other settings after a death, $i: $(cat "$tmp/status")"
done
# A worker is stopped: the status reports it, and the log once, and both its end.
inside kill -STOP "$(pid_of iod)"
wait_for 10 eval \
    'as alice ntx status --json |
        grep -q "\"state\":\"degraded\",\"serving\":false,\"reasons\":\[\"ntx-iod (pid [0-9]*) is stopped"' ||
    fail "a stopped ntx-iod: $(as alice ntx status)"
inside kill -CONT "$(pid_of iod)"
wait_for 10 served || fail "after SIGCONT: $(as alice ntx status)"
[ "$(journal -u ntx-computed -o cat | grep -c 'degraded: ntx-iod .* is stopped')" = 1 ] &&
    [ "$(journal -u ntx-computed -o cat | grep -c 'over: ntx-iod .* is stopped')" = 1 ] ||
    fail "the log of a stop: $(journal -n 20)"
# After an unload and a kill, no model comes back.
as alice ntx unload || fail "unload"
before=$(pid_of computed)
inside kill -9 "$before"
wait_for 20 eval \
    'now=$(pid_of computed); [ "$now" != 0 ] && [ "$now" != "$before" ] &&
        as alice ntx status --json 2>/dev/null | grep -q "\"state\":\"empty\""' ||
    fail "after an unload: $(as alice ntx status)"

# An ntx-iod that ends again and again before it delivers a byte fails the load or the answer, which names how it ended.
# (On a busy machine it may read something between two kills; then the answer comes, or reads of the dead ones, which
# nobody can prove finished, are left in all slots.) The next load works.
# The loop also ends with this test, whose failure removes $tmp: it would take a processor for ever.
(while [ -d "$tmp" ] && [ ! -e "$tmp/enough" ]; do inside pkill -KILL -x ntx-iod; done) & killer=$!
if as alice ntx load /home/alice/m.gguf --ram 14M --ctx 48 >"$tmp/load" 2>&1 && gen >"$tmp/got" 2>>"$tmp/load"; then
    same "$tmp/want" "$tmp/got" "while ntx-iod was killed again and again"
else
    grep -Eq -e 'ntx-iod (ended 10 times in a row|did not get ready).*the last time:? killed' \
        -e 'ntx-iod died, and what it was reading may still come at any time.*load the model again' "$tmp/load" ||
        fail "a dying ntx-iod: $(cat "$tmp/load"; journal -n 20)"
fi
: >"$tmp/enough"
wait "$killer"
as alice ntx load /home/alice/m.gguf --ram 14M --ctx 48 --quiet || fail "load after a dying ntx-iod"
gen >"$tmp/got" 2>"$tmp/err" && same "$tmp/want" "$tmp/got" "after a dying ntx-iod" || fail "$(cat "$tmp/err")"
as alice ntx unload || fail "unload after a dying ntx-iod"

# The log: one line for an event, with its level.
journal -u 'ntx-*' -o json --output-fields=PRIORITY,MESSAGE,_SYSTEMD_UNIT >"$tmp/journal"
python3 - "$tmp/journal" <<'PY' || fail "the journal"
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
ours = [l for l in lines if l.get("_SYSTEMD_UNIT", "").startswith("ntx-")]
assert len(ours) > 10, "only %d lines of ours" % len(ours)
levels = {l["PRIORITY"] for l in ours}
assert levels <= {"3", "4", "6"} and "6" in levels, levels
texts = [l["MESSAGE"] for l in ours]
assert all(isinstance(t, str) and "\n" not in t and not t.startswith("<") for t in texts)
assert any("is loaded" in l["MESSAGE"] for l in ours), "no word of the load"
print(len(ours), "lines in the journal")
PY

# Rights.
for d in computed iod predictor metrics gateway; do
    level=$(inside systemd-analyze security --no-pager --offline=yes /run/ntx-units/ntx-$d.service 2>/dev/null |
        sed -n 's/.*exposure level for .*: \([0-9.]* [A-Z]*\).*/\1/p')
    case $level in
    [0-4].*" OK" | [0-4].*" SAFE" | [0-4].*" PERFECT") echo "ntx-$d: $level" ;;
    *) fail "systemd-analyze security of ntx-$d: '$level'" ;;
    esac
done

# A stop waits while a text's state is written, one MiB of which takes longer than TimeoutStopSec.
inside sh \
    -c \
    'printf "[clients]\nstop_grace = 1\n[prefix]\nstate = /var/lib/ntx/state\n" >/opt/ntx/etc/ntx/ntx.conf &&
    mkdir /run/ntx-units/ntx-computed.service.d &&
    printf "[Service]\nTimeoutStopSec=2\nEnvironment=LD_PRELOAD=/opt/ntx/lib/libslow_write.so NTX_WRITE_MS=6000\n" \
        >/run/ntx-units/ntx-computed.service.d/slow.conf && systemctl daemon-reload'
inside systemctl restart ntx.target || fail "restart: $(journal -n 20)"
as alice ntx load /home/alice/m.gguf --ram 64M --ctx 1024 >"$tmp/load" 2>&1 ||
    fail "load with a state: $(cat "$tmp/load"; journal -n 20)"
as alice ntx generate "$(words 900)" --raw --ignore-eos -n 4 --quiet >/dev/null ||
    fail "generate with a state"
begin=$SECONDS
inside systemctl stop ntx.target || fail "stop"
wait_for 30 eval 'case $(state ntx-computed.service ActiveState) in inactive | failed) ;; *) false ;; esac' ||
    fail "ntx-computed does not end: $(journal -n 10)"
[ "$(state ntx-computed.service Result)" = success ] && inside ls /var/lib/ntx/state | grep -q '\.prefix$' ||
    fail "a state is lost at the end, after $((SECONDS - begin)) s: $(inside ls -la /var/lib/ntx/state; journal -n 20)"
[ $((SECONDS - begin)) -ge 4 ] || fail "writing was not slow: $((SECONDS - begin)) s"
wait_for 20 eval '[ -z "$(inside pgrep ntx-)" ]' || fail "left running: $(inside pgrep -a ntx-)"
[ -z "$(inside ls -A /run/ntx /dev/shm 2>/dev/null | grep -v ':$' | grep .)" ] ||
    fail "left behind: $(inside ls -A /run/ntx /dev/shm)"
for d in computed iod predictor; do
    [ "$(state ntx-$d.service Result)" = success ] || fail "ntx-$d ended with $(state ntx-$d.service Result)"
done
echo "systemd $(inside sed -n '1s/ (.*//p' /run/systemd-version): started, killed four times, stopped; nothing left"
