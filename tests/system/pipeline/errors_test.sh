#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Bad input gets one clear line that says what to do, and the right exit code.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/m.gguf" --layers 4 --embd 512 --ff 1536 --heads 8 --kv 2 --type Q8_0
# expect CODE PATTERN COMMAND...
expect() {
    local code=$1 pattern=$2 got; shift 2
    timeout $((100 * $(patience))) "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    got=$?
    [ $got = "$code" ] || fail "$*: exit $got, not $code: $(cat "$tmp/err")"
    grep -Eq -- "$pattern" "$tmp/err" || fail "$*: '$(cat "$tmp/err")' lacks '$pattern'"
    sed -i '/^ntx: context of [0-9]* tokens/d; ' "$tmp/err" # told before anything went wrong
    [ "$code" = 100 ] || [ "$(wc -l <"$tmp/err")" = 1 ] || fail "$*: more than one line: $(cat "$tmp/err")"
}
n=$NTX_BIN/ntx
expect 100 'not a command' "$n" frobnicate
expect 100 'needs MODEL' "$n" run
expect 100 "there is no option '--tmp'; did you mean --temp[?]" "$n" run "$tmp/m.gguf" x --tmp 1
expect 100 "there is no option '--port'$" "$NTX_BIN/ntx-gateway" --port 80 # --cors differs in two of four letters
expect 111 "$tmp: cannot read the prompt: Is a directory" "$n" run "$tmp/m.gguf" -f "$tmp" --ram 64M
expect 111 'ntx pull hf:a/b. fetches it' "$n" run hf:a/b x
expect 111 'ntx pull https://a.invalid/b.gguf. fetches it' "$n" run https://a.invalid/b.gguf x
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
head -c 100 "$tmp/m.gguf" >"$tmp/cut.gguf"
expect 111 'cut.gguf: claims .*fetch it again' "$n" run "$tmp/cut.gguf" x
head -c 100000 "$tmp/m.gguf" >"$tmp/cut.gguf"
expect 111 'cut.gguf' "$n" run "$tmp/cut.gguf" x
expect 111 'cuda' "$n" run "$tmp/m.gguf" x --backend cuda
expect 100 'not a known instruction set; there are generic' "$n" run "$tmp/m.gguf" x --kernel mmx
expect 111 'ntx up' "$n" status --socket "$tmp/none.sock"
expect 111 'no daemons run there.*ntx up' env NTX_RUNTIME="$tmp/none" "$n" trace -o "$tmp/t.json"
expect 111 'no daemons run there.*ntx up' "$NTX_BIN/ntx-metrics" --runtime "$tmp/none"
expect 100 "chat-template: 'nope' is neither a name .llama-2, .*nor a file" "$n" run "$tmp/m.gguf" x \
    --chat-template nope
echo '{% if %}' >"$tmp/bad.jinja"
expect 100 'chat-template .*bad.jinja: .*line 1' "$n" run "$tmp/m.gguf" x --chat-template "$tmp/bad.jinja" --ram 64M
expect 100 'give the file to .ntx load., .ntx up. or .ntx serve.' "$n" generate x --chat-template <(echo x)
expect 100 "think: 'loud' is none of on, off" "$n" run "$tmp/m.gguf" x --think loud
expect 100 "think: 'on,hihg' is none of .*; did you mean high" "$n" run "$tmp/m.gguf" x --think on,hihg
expect 111 "No such file.*did you mean $tmp/cut.gguf" "$n" run "$tmp/m.gguf" x --draft "$tmp/cutt.gguf"
expect 111 'ctx|context' "$n" run "$tmp/m.gguf" "$(printf 'word %.0s' {1..200})" --raw --ctx 32 --ram 64M
expect 111 'EIO|Input/output|I/O' "$n" run "$tmp/m.gguf" x --raw -n 4 --ram 10M --ctx 64 \
    --fault iod:eio@chunk=9,count=99
# Output files are checked before the work begins.
expect 111 'no/dir/s.json: cannot be written: No such file' "$n" run "$tmp/m.gguf" x --ram 64M \
    --stats "$tmp/no/dir/s.json"
expect 111 'cannot be written: Is a directory' "$n" run "$tmp/m.gguf" x --ram 64M --trace "$tmp"
[ ! -s "$tmp/out" ] || fail "a token came before --trace was looked at"

# Where the disk is full, no half of a file stays.
if unshare -m true 2>/dev/null; then
    mkdir "$tmp/full"
    small='mount -t tmpfs -o size=64k none "$0" && "$@"; rc=$?; ls -A "$0"; exit $rc'
    expect 111 'half: cannot write: No space left' unshare -m sh -c "$small" "$tmp/full" \
        "$n" logits "$tmp/m.gguf" --tokens "$(seq -s, 1 200)" \
        --ram 64M --ctx 256 -o "$tmp/full/half"
    [ ! -s "$tmp/out" ] || fail "half of the logits stayed"
fi

# An output file must not be one of the input files, by whatever name; those stay as they are.
cp "$tmp/m.gguf" "$tmp/part-00001-of-00001.gguf"
ln -s m.gguf "$tmp/link.gguf"
for i in {1..300}; do echo "once upon a time there was number $i"; done >"$tmp/read.txt"
cp "$tmp/read.txt" "$tmp/read.was"
for out in "$tmp/m.gguf" "$tmp/link.gguf"; do
    for c in "imatrix $tmp/m.gguf $tmp/read.txt -o" "calibrate $tmp/m.gguf --text $tmp/read.txt -o" \
        "draft-index $tmp/m.gguf $tmp/read.txt -o" "run $tmp/m.gguf x -n 2 --stats" "run $tmp/m.gguf x -n 2 --trace" \
        "perplexity $tmp/m.gguf $tmp/read.txt --save-logits" "logits $tmp/m.gguf --tokens 1,2 --steps" \
        "logits $tmp/m.gguf --tokens 1,2 -o" "bench $tmp/m.gguf -p 2 -n 2 --stats" "pack $tmp/m.gguf" \
        "pack --delta $tmp/m.gguf"; do
        # shellcheck disable=SC2086
        expect 111 "$out: this is the model itself; give another name" "$n" $c "$out"
    done
done
expect 111 'part-00001-of-00001.gguf: this is the model itself' "$n" run "$tmp/part-00001-of-00001.gguf" x \
    --stats "$tmp/part-00001-of-00001.gguf"
expect 111 'm.gguf: ntx run reads this file; give the output another name' "$n" run \
    "$tmp/part-00001-of-00001.gguf" x --draft "lookup,$tmp/m.gguf" --stats "$tmp/m.gguf"
for c in "imatrix $tmp/m.gguf $tmp/read.txt -o" "calibrate $tmp/m.gguf --text $tmp/read.txt -o" \
    "draft-index $tmp/m.gguf $tmp/read.txt -o" "perplexity $tmp/m.gguf $tmp/read.txt --save-logits" \
    "run $tmp/m.gguf --file $tmp/read.txt --stats"; do
    # shellcheck disable=SC2086
    expect 111 "read.txt: ntx ${c%% *} reads this file; give the output another name" "$n" $c "$tmp/read.txt"
done
cmp -s "$tmp/m.gguf" "$tmp/part-00001-of-00001.gguf" && same "$tmp/read.txt" "$tmp/read.was" "what was read" ||
    fail "the model was written over"
"$n" run "$tmp/m.gguf" "$tmp/read.txt" --raw -n 2 --ctx 512 --ram 64M \
    --quiet --stats "$tmp/read.txt" >/dev/null 2>"$tmp/err" || fail "a prompt is no file: $(cat "$tmp/err")"
[ -c /dev/full ] && { "$NTX_BIN/ntx-computed" --print-config >/dev/full 2>"$tmp/err"; [ $? = 111 ] &&
    grep -q 'standard output: No space left' "$tmp/err" || fail "--print-config without room: $(cat "$tmp/err")"; }

if [ "$(id -u)" != 0 ]; then
    cp "$tmp/m.gguf" "$tmp/secret.gguf"; chmod 000 "$tmp/secret.gguf"
    expect 111 'may not read' "$n" run "$tmp/secret.gguf" x
fi
# Limits of the shell: descriptors (libraries abort without one; a soft limit is raised), and the size of written files.
for least in 20 28 100; do expect 111 '256 descriptors are needed, but no more than' bash \
    -c "ulimit -n $least; exec \"\$@\"" - "$n" run "$tmp/m.gguf" x --ram 64M --quiet; done
(ulimit -Sn 40; exec "$n" run "$tmp/m.gguf" x --raw -n 2 --ctx 64 --ram 64M --quiet) >/dev/null 2>"$tmp/err" ||
    fail "a soft limit of 40 descriptors: $(cat "$tmp/err")"
sanitized ||
    expect 111 'counters.*File too large' bash -c 'ulimit -f 100; exec "$@"' - "$n" run "$tmp/m.gguf" x --ram 64M \
    --quiet
mkdir -m 777 "$tmp/open"
NTX_RUNTIME=$tmp/open expect 111 \
    'open: owned by somebody else or writable by others.*NTX_RUNTIME to a directory of your own' "$n" status
expect 100 'quotes' "$n" run "$tmp/m.gguf" two words

# The error about too small a budget names one that suffices, and that one works.
expect 111 'at least|smallest' "$n" run "$tmp/m.gguf" x --raw -n 2 --ctx 64 --ram 1M
least=$(sed -n 's/.*would do is [^(]*(\([0-9]*\) bytes).*/\1/p' "$tmp/err")
[ -n "$least" ] || fail "no number in: $(cat "$tmp/err")"
"$n" run "$tmp/m.gguf" x --raw -n 2 --ctx 64 --ram "$least" --quiet >/dev/null 2>"$tmp/err" ||
    fail "--ram $least, which was named, fails: $(cat "$tmp/err")"
echo "all refusals are one line; smallest budget $least works"
