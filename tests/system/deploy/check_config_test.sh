#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `ntx config check` and --check-config of the daemons: every error of ntx.conf with its line, exit code 1; "ok" and 0
# for a good one. Keys, values, files, what the model needs, and settings that do not go together. Root checks files as
# the service's users.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/m.gguf" --layers 2 --embd 64 --ff 128 --heads 2 --kv 1 --type Q8_0 --seed 3
c=$tmp/ntx.conf
umask 022
chmod 755 "$tmp"

# good COMMAND...: it accepts $c
good() {
    "$@" >"$tmp/out" 2>"$tmp/err" || fail "$*: exit $?: $(cat "$tmp/err")"
    [ "$(cat "$tmp/out")" = "$c: ok" ] && ! grep -v ^note: "$tmp/err" || fail "$*: $(cat "$tmp/out" "$tmp/err")"
}
# bad COMMAND...: the lines that it prints are those of $tmp/want, in any order; each is a pattern
bad() {
    "$@" >"$tmp/out" 2>"$tmp/err"
    [ $? = 1 ] && [ ! -s "$tmp/out" ] || fail "$*: exit $?, $(cat "$tmp/out" "$tmp/err")"
    while IFS= read -r line; do
        grep -q -- "^$c:$line" "$tmp/err" || fail "$*: '$line' is not in: $(cat "$tmp/err")"
    done <"$tmp/want"
    [ "$(grep -c "^$c:[0-9]" "$tmp/err")" = "$(wc -l <"$tmp/want")" ] || fail "$*: other errors: $(cat "$tmp/err")"
    grep -q "^$c: $(wc -l <"$tmp/want") error" "$tmp/err" || fail "$*: their number: $(cat "$tmp/err")"
}

cat >"$c" <<END
[model]
path = $tmp/m.gguf
ram = 64M
[gateway]
listen = 127.0.0.1:8080
END
for check in "ntx config check $c" "$NTX_BIN/ntx-computed --check-config --config $c" \
    "$NTX_BIN/ntx-gateway --check-config --config $c" "$NTX_BIN/ntx-metrics --check-config --config $c"; do
    # shellcheck disable=SC2086
    good $check
done
"$NTX_BIN/ntx-computed" --print-config >"$c" && good ntx config check "$c"

# Every error, not the first alone.
cat >"$c" <<END
[model]
path = $tmp/m.gguf
also = $tmp/notes
ram = 100K
ctxx = 5
backend = cpuu
nonsense
[modle]
x = 1
[clients]
max = 4
per_user = 5
[prefix]
file = $tmp/none
kv_ram = 64
[gateway]
listen = 0.0.0.0:8080
cors = example.org
api_key_file = $tmp/none
[metrics]
listen = 127.0.0.1:99999
END
echo text >"$tmp/notes"
cat >"$tmp/want" <<'END'
3: also: .*/notes: not a GGUF file
4: ram: the smallest memory budget that would do is
5: unknown key 'ctxx' in .model.; did you mean ctx?
6: backend: 'cpuu' is not a back end; .*; did you mean cpu?
7: neither '.section.' nor 'key = value'
9: there is no section .modle.
12: per_user: 5 are more than max, which is 4
14: file: .*/none: No such file or directory
15: kv_ram: '64' has no unit .*; did you mean 64G?
18: cors: 'example.org' is no origin
19: api_key_file: .*/none: the API key cannot be read: No such file or directory
21: listen: '127.0.0.1:99999': the port is no number
END
bad ntx config check "$c"
grep -v '^18\|^19\|^21' "$tmp/want" >"$tmp/daemon" && mv "$tmp/daemon" "$tmp/want"
bad "$NTX_BIN/ntx-computed" --check-config --config "$c"

# The contents of files.
head -c 200 "$tmp/m.gguf" >"$tmp/cut.gguf"
printf '[model]\npath = %s\n[prefix]\nkv_ram = 64M\n[gateway]\nlisten = 0.0.0.0:80\n' "$tmp/cut.gguf" >"$c"
printf '%s\n' '2: path: .*cut.gguf' '4: kv_ram: .* set state' '6: listen: other machines reach .*: set api_key_file' \
    >"$tmp/want"
bad ntx config check "$c"
printf '[model]\nlora = %s\ndraft = lookup,%s\n' "$tmp/notes" "$tmp/none" >"$c"
printf '%s\n' '2: lora: .*not a GGUF' '3: draft: .*No such file' >"$tmp/want"
bad ntx config check "$c"
printf '[model]\npath = /home/somebody/m.gguf\n' >"$c"
printf '%s\n' '2: path: .*the service does not see folders of users' >"$tmp/want"
bad ntx config check "$c"
ntx config check "$tmp/nowhere.conf" >"$tmp/out" 2>"$tmp/err" && fail "a file that does not exist"
[ "$(cat "$tmp/err")" = "$tmp/nowhere.conf: No such file or directory" ] || fail "no file: $(cat "$tmp/err")"

# The daemon tells all of it, too, and does not start.
printf '[model]\nctxx = 5\nram = lots\n' >"$c"
"$NTX_BIN/ntx-computed" --service --runtime "$tmp" --config "$c" 2>"$tmp/err"
[ $? = 100 ] && [ "$(wc -l <"$tmp/err")" = 3 ] && grep -q ':2: unknown key' "$tmp/err" &&
    grep -q ':3: ram: ' "$tmp/err" &&
    tail -n 1 "$tmp/err" | grep -q "not started: $c has 2 errors; .ntx config check $c. shows all" ||
    fail "ntx-computed with errors: $(cat "$tmp/err")"
echo "good ones are ok, and every error has its line"
