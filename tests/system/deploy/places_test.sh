#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# [model] at_once under systemd: a second set of daemons, by instances of the same units. A kill of one, a smaller
# number, and the stop of the target.
. "$(dirname "$0")/../../lib/test.sh"
. "$(dirname "$0")/machine.sh"
command -v curl >/dev/null || skip "no curl"
http_sock=/run/ntx-gateway/http.sock
conf() {
    {
        printf '[model]\npath = /var/lib/ntx/m.gguf\nmodels = /var/lib/ntx/m.gguf, /var/lib/ntx/n.gguf\n'
        printf 'ram = 200M\nctx = 256\nat_once = %s\n[gateway]\nlisten = unix:%s\n' "$1" $http_sock
    } | inside sh -c 'cat >/opt/ntx/etc/ntx/ntx.conf'
}
api() { inside curl -sS --max-time 60 --unix-socket $http_sock "http://localhost$1" "${@:2}"; }
ask() {
    local body='"prompt":"Once","max_tokens":8,"temperature":0,"ignore_eos":true'
    api /v1/completions -d "{\"model\":\"$1\",$body}" |
        python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["text"])'
}
loaded() {
    api /api/ps | python3 -c 'import json, sys; print(*sorted(m["name"] for m in json.load(sys.stdin)["models"]))'
}
both() { [ "$(loaded)" = "m n" ]; }
active() { inside systemctl is-active -q "$1"; }

model "$tmp/n.gguf" --layers 2 --embd 64 --ff 128 --heads 2 --kv 1 --seed 7
inside sh -c 'mkdir -p /var/lib/ntx && cp /home/alice/m.gguf /var/lib/ntx/ && cat >/var/lib/ntx/n.gguf &&
    chown -R ntx:ntx /var/lib/ntx' <"$tmp/n.gguf" || fail "the models"
conf 2
inside systemctl start ntx.target || fail "start: $(journal -n 40)"
wait_for 20 active ntx-computed@2.service || fail "no second set: $(journal -n 40)"
ask m >"$tmp/m" && ask n >"$tmp/n" && [ -s "$tmp/m" ] && ! cmp -s "$tmp/m" "$tmp/n" || fail "$(journal -n 40)"
both || fail "loaded: $(loaded)"
for daemon in computed iod predictor; do
    active ntx-$daemon@2.service || fail "ntx-$daemon@2 does not run: $(journal -n 40)"
done
[ "$(inside stat -c %U:%a /run/ntx/place-2)" = ntx:750 ] || fail "the second set's directory"

inside kill -9 "$(state ntx-computed@2.service MainPID)"
same "$tmp/n" <(ask n) "after a kill of the second one"
same "$tmp/m" <(ask m) "the first one beside it"
wait_for 20 both || fail "loaded after a kill: $(loaded)"

conf 1
inside systemctl restart ntx.target || fail "restart: $(journal -n 40)"
gone_again() { ! active ntx-computed@2.service && ! active ntx-iod@2.service; }
wait_for 20 gone_again || fail "a second set with at_once = 1"
same "$tmp/n" <(ask n) "one at a time"
[ "$(loaded)" = n ] || fail "loaded, one at a time: $(loaded)"
inside systemctl is-failed -q 'ntx-*' && fail "a unit failed: $(inside systemctl --failed --no-pager)"

conf 2
inside systemctl restart ntx.target || fail "restart: $(journal -n 40)"
wait_for 20 active ntx-iod@2.service || fail "no second set again: $(journal -n 40)"
inside systemctl stop ntx.target
stopped() { ! inside systemctl is-active -q 'ntx-*.service'; }
wait_for 40 stopped || fail "left: $(inside systemctl list-units 'ntx-*' --no-pager)"
