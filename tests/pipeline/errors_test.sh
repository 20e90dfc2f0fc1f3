#!/bin/bash
# Bad input gets one clear line that says what to do, and the right exit code.
. "$(dirname "$0")/lib.sh"
model "$tmp/m.gguf" --layers 4 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0
# expect CODE PATTERN COMMAND...
expect() {
    local code=$1 pattern=$2 got; shift 2
    timeout 100 "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    [ $got = "$code" ] || fail "$*: exit $got, not $code: $(cat "$tmp/err")"
    grep -Eq -- "$pattern" "$tmp/err" || fail "$*: '$(cat "$tmp/err")' lacks '$pattern'"
    sed -i '/^ntx: context of [0-9]* tokens/d; ' "$tmp/err" # told before anything went wrong
    [ "$code" = 100 ] || [ "$(wc -l <"$tmp/err")" = 1 ] || fail "$*: more than one line: $(cat "$tmp/err")"
}
n=$NTX_BIN/ntx
expect 100 'not a command' "$n" frobnicate
expect 100 'needs MODEL' "$n" run
expect 100 'not a size' "$n" run "$tmp/m.gguf" x --ram lots
expect 100 'not a back end' "$n" run "$tmp/m.gguf" x --backend tpu
expect 100 'whole number' "$n" run "$tmp/m.gguf" x -n -3
expect 100 'more than' "$n" run "$tmp/m.gguf" x --threads 99999999
expect 111 'too long' "$n" run "$tmp/m.gguf" x --ram 64M --skip "$(printf 'x%.0s' {1..4097})"
expect 111 'no/such/file.gguf: No such file.*GGUF' "$n" run no/such/file.gguf x
expect 111 'not a regular file' "$n" run "$tmp" x
mkfifo "$tmp/pipe.gguf"
expect 111 'pipe.gguf: not a regular file' "$n" run "$tmp/pipe.gguf" x
echo "this is no model at all, just some text that goes on for a while" >"$tmp/text"
expect 111 'text:.*(GGUF|magic)' "$n" run "$tmp/text" x
: >"$tmp/empty"
expect 111 'empty' "$n" run "$tmp/empty" x
head -c 100000 "$tmp/m.gguf" >"$tmp/cut.gguf"
expect 111 'cut.gguf' "$n" run "$tmp/cut.gguf" x
expect 111 'cuda' "$n" run "$tmp/m.gguf" x --backend cuda
expect 100 'not a known instruction set; there are generic' "$n" run "$tmp/m.gguf" x --kernel mmx
expect 111 'ntx up' "$n" status --socket "$tmp/none.sock"
expect 111 'no daemons run there.*ntx up' env NTX_RUNTIME="$tmp/none" "$n" trace -o "$tmp/t.json"
expect 111 'no daemons run there.*ntx up' "$NTX_BIN/ntx-metrics" --runtime "$tmp/none"
expect 111 '[Tt]emplate' "$n" run "$tmp/m.gguf" x --chat-template nope --ram 64M
expect 111 'ctx|context' "$n" run "$tmp/m.gguf" "$(printf 'word %.0s' {1..200})" --raw --ctx 32 --ram 64M
expect 111 'EIO|Input/output|I/O' "$n" run "$tmp/m.gguf" x --raw -n 4 --ram 10M --ctx 64 --fault iod:eio@chunk=9,count=99
# What is written at the end is looked at before the beginning.
expect 111 'no/dir/s.json: cannot be written: No such file' "$n" run "$tmp/m.gguf" x --ram 64M --stats "$tmp/no/dir/s.json"
expect 111 'cannot be written: Is a directory' "$n" run "$tmp/m.gguf" x --ram 64M --trace "$tmp"
[ ! -s "$tmp/out" ] || fail "a token came before --trace was looked at"

if [ "$(id -u)" != 0 ]; then
    cp "$tmp/m.gguf" "$tmp/secret.gguf"; chmod 000 "$tmp/secret.gguf"
    expect 111 'may not read' "$n" run "$tmp/secret.gguf" x
fi
# Limits of the shell: descriptors (libraries abort for want of one; a soft limit is raised), the size of files that are written.
for least in 20 28 100; do expect 111 '256 descriptors are needed, but no more than' bash -c "ulimit -n $least; exec \"\$@\"" - "$n" run "$tmp/m.gguf" x --ram 64M --quiet; done
(ulimit -Sn 40; exec "$n" run "$tmp/m.gguf" x --raw -n 2 --ctx 64 --ram 64M --quiet) >/dev/null 2>"$tmp/err" || fail "a soft limit of 40 descriptors: $(cat "$tmp/err")"
sanitized || expect 111 'counters.*File too large' bash -c 'ulimit -f 100; exec "$@"' - "$n" run "$tmp/m.gguf" x --ram 64M --quiet
mkdir -m 777 "$tmp/open"
NTX_RUNTIME=$tmp/open expect 111 'open: owned by somebody else or writable by others.*NTX_RUNTIME to a directory of your own' "$n" status
expect 100 'quotes' "$n" run "$tmp/m.gguf" two words

# Too small a budget is refused with one that does, and that one does.
expect 111 'at least|smallest' "$n" run "$tmp/m.gguf" x --raw -n 2 --ctx 64 --ram 1M
least=$(sed -n 's/.*would do is [^(]*(\([0-9]*\) bytes).*/\1/p' "$tmp/err")
[ -n "$least" ] || fail "no number in: $(cat "$tmp/err")"
"$n" run "$tmp/m.gguf" x --raw -n 2 --ctx 64 --ram "$least" --quiet >/dev/null 2>"$tmp/err" || fail "--ram $least, which was named, fails: $(cat "$tmp/err")"
echo "all refusals are one line; smallest budget $least works"
