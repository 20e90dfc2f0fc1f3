#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Actions of an operator while answers stream: a reload, which does not exist; a new version installed over the running
# one, a worker of which dies; a restart with time for the answers to end, over the socket and over HTTP, and one
# without. Each client gets its whole answer, or one line with the reason.
. "$(dirname "$0")/../../lib/test.sh"
. "$(dirname "$0")/machine.sh"
command -v curl >/dev/null || skip "no curl"
http_sock=/run/ntx-gateway/http.sock
conf() {
    {
        printf '[model]\npath = /var/lib/ntx/m.gguf\nram = 14M\nctx = 512\n[links]\nnvme = 150M\n'
        printf '[clients]\nstop_grace = %s\n[gateway]\nlisten = unix:%s\n' "$1" $http_sock
    } | inside sh -c 'cat >/opt/ntx/etc/ntx/ntx.conf'
}
gen() { as alice ntx generate "Once upon a time" --raw --ignore-eos -n "$1" --quiet; }
http() {
    local body="\"max_tokens\":$1,\"ignore_eos\":true,\"seed\":1,\"temperature\":0.8,\"stream\":true"
    inside curl -sSN --unix-socket $http_sock http://localhost/v1/completions -d \
        "{\"prompt\":\"Once upon a time\",$body}"
}
loaded() {
    [ "$(inside curl -s -o /dev/null -w '%{http_code}' --unix-socket $http_sock http://localhost/health)" = 200 ]
}
ready() { wait_for 10 loaded || fail "not ready: $(journal -n 30)"; }
# begin N: an answer of so many tokens over the socket, and one over HTTP, whose first tokens are there when this
# returns
begin() {
    : >"$tmp/got" >"$tmp/http"
    gen "$1" >"$tmp/got" 2>"$tmp/err" &
    g=$!
    http "$1" >"$tmp/http" 2>"$tmp/http.err" &
    h=$!
    wait_for 20 eval '[ -s "$tmp/got" ] && grep -q "^data" "$tmp/http"' ||
        fail "no answers: $(cat "$tmp/err" "$tmp/http.err"; journal -n 20)"
}
pieces() { python3 -c '
import json, sys
for line in open(sys.argv[1]):
    d = line[6:].strip() if line.startswith("data: ") else ""
    if d == "[DONE]":
        print("DONE")
    elif d:
        e = json.loads(d)
        print("ERROR " + e["error"]["message"] if "error" in e else json.dumps(e["choices"][0]["text"]))' "$1"; }
whole() {
    wait $g || fail "$1: the answer failed: $(cat "$tmp/err")"
    same "$tmp/want" "$tmp/got" "$1"
    wait $h || fail "$1: HTTP failed: $(cat "$tmp/http.err")"
    pieces "$tmp/http" >"$tmp/pieces"
    [ "$(tail -n 1 "$tmp/pieces")" = DONE ] || fail "$1: the stream's end: $(tail -n 2 "$tmp/pieces")"
    same "$tmp/want.http" "$tmp/pieces" "$1, over HTTP"
}

N=40
conf 30
inside sh -c 'mkdir -p /var/lib/ntx && cp /home/alice/m.gguf /var/lib/ntx/ && chown -R ntx:ntx /var/lib/ntx' ||
    fail "the model"
inside systemctl start ntx.target || fail "start: $(journal -n 40)"
ready
gen $N >"$tmp/want" 2>"$tmp/err" || fail "generate: $(cat "$tmp/err")"
http $N >"$tmp/http" && pieces "$tmp/http" >"$tmp/want.http" && [ "$(tail -n 1 "$tmp/want.http")" = DONE ] ||
    fail "over HTTP: $(cat "$tmp/http")"

# A reload.
begin $N
for u in ntx.target ntx-computed.service ntx-gateway.service; do
    inside systemctl reload $u 2>"$tmp/reload" && fail "$u was reloaded"
    grep -q 'not applicable' "$tmp/reload" || fail "reload of $u: $(cat "$tmp/reload")"
done
whole "a reload"

# A new version over the running one: programs are replaced as by dpkg, and its script runs.
begin $N
inside sh -c 'cp -a /opt/ntx/bin /run/new && cp -a --remove-destination /run/new/. /opt/ntx/bin/ &&
    for d in sysusers.d tmpfiles.d; do mkdir -p /etc/$d && cp /opt/ntx/lib/$d/ntx.conf /etc/$d/ || exit 1; done' ||
    fail "a new version"
sed -n '/^set -e/,$p' "$NTX_SOURCE/deploy/debian/postinst" | inside sh -s configure 0.0.0 >"$tmp/postinst" 2>&1 ||
    fail "postinst: $(cat "$tmp/postinst")"
inside test /proc/"$(state ntx-computed.service MainPID)"/exe -ef /opt/ntx/bin/ntx-computed &&
    fail "the program was not replaced"
whole "an upgrade"

# Then ntx-iod dies, and its successor is of the build that is now installed.
cat "$NTX_BUILD/tests/other_iod" |
    inside sh \
    -c \
    'cat >/opt/ntx/bin/other_iod && chmod 755 /opt/ntx/bin/other_iod &&
        mv /opt/ntx/bin/ntx-iod /opt/ntx/bin/ntx-iod.new' || fail "another ntx-iod"
inside sh -c 'cat >/opt/ntx/bin/ntx-iod && chmod 755 /opt/ntx/bin/ntx-iod' <<'EOF'
#!/bin/sh
rm /run/ntx/other 2>/dev/null && exec /opt/ntx/bin/other_iod "$@"
exec /opt/ntx/bin/ntx-iod.new "$@"
EOF
before=$(state ntx-computed.service MainPID)
begin 200
inside setpriv --reuid ntx --regid ntx --clear-groups touch /run/ntx/other
inside kill -9 "$(state ntx-iod.service MainPID)"
wait $g && fail "an answer without ntx-iod ended well: $(journal -n 30)"
[ "$(wc -l <"$tmp/err")" = 1 ] && grep -q 'ntx-iod was refused: it is build 0.0.0+another' "$tmp/err" ||
    fail "what the client is told: $(cat "$tmp/err")"
wait $h || fail "HTTP broke off: $(cat "$tmp/http.err")"
pieces "$tmp/http" | tail -n 1 | grep -q '^ERROR .*it is build 0.0.0+another' ||
    fail "over HTTP it is told: $(tail -n 1 "$tmp/http")"
wait_for 30 eval 'now=$(state ntx-computed.service MainPID); [ "$now" != 0 ] && [ "$now" != "$before" ]' ||
    fail "ntx-computed was not started again: $(journal -n 30)"
journal -u ntx-computed | grep -q 'what is installed now is started' || fail "no word of it: $(journal -n 30)"
ready
gen $N >"$tmp/got" 2>"$tmp/err" || fail "after the upgrade: $(cat "$tmp/err"; journal -n 30)"
same "$tmp/want" "$tmp/got" "after the upgrade"

# A restart under load, with time.
begin $N
inside systemctl restart ntx.target &
r=$!
wait_for 20 eval '[ "$(state ntx-computed.service ActiveState)" = deactivating ]' || fail "no restart: $(journal -n 20)"
gen 2 >/dev/null 2>"$tmp/late" && fail "a newcomer was let in at the end"
[ "$(wc -l <"$tmp/late")" = 1 ] || fail "a newcomer is told: $(cat "$tmp/late")"
whole "a restart"
wait $r || fail "restart: $(journal -n 20)"
ready
gen $N >"$tmp/got" 2>"$tmp/err" || fail "after the restart: $(cat "$tmp/err")"
same "$tmp/want" "$tmp/got" "after the restart"

# And without.
conf 1
inside systemctl restart ntx.target || fail "restart: $(journal -n 20)"
ready
begin 200
inside systemctl restart ntx.target || fail "restart: $(journal -n 20)"
wait $g && fail "an answer that was cut ended well"
[ "$(cat "$tmp/err")" = "ntx: the answer is cut short: ntx-computed is shutting down" ] ||
    fail "what the client is told: $(cat "$tmp/err")"
wait $h || fail "HTTP broke off: $(cat "$tmp/http.err")"
[ "$(pieces "$tmp/http" | tail -n 1)" = "ERROR ntx-computed cut the answer short: it is shutting down" ] ||
    fail "over HTTP it is told: $(tail -n 1 "$tmp/http")"
ready
for d in computed iod predictor gateway; do
    [ "$(state ntx-$d.service Result)" = success ] ||
        fail "ntx-$d ended with $(state ntx-$d.service Result): $(journal -n 30)"
done
echo "reloaded, upgraded, restarted twice, while answers streamed"
