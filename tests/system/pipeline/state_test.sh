#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kept state, from the command line: --state DIR, --resume, /save NAME, /list. What was computed is not computed again,
# and the text is the same.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_STATE_HOME=$tmp/home
demo=$NTX_SOURCE/models/demo-chat.gguf
[ -e "$demo" ] || skip "models/demo-chat.gguf is not there"
long=$(words 3000)

# answer OUT COMMAND...: the text, and how many of the prompt's tokens were kept
answer() {
    local out=$1; shift
    ntx run "$demo" "$@" -n 24 --temp 0 --ctx 2048 --quiet --stats "$tmp/stats" >"$out" 2>"$tmp/err" ||
        fail "run: $(cat "$tmp/err")"
    cached=$(stat_of "$tmp/stats" cached_tokens)
}
files() { ls "$1" | grep -c '\.prefix$'; }

# A text of another process continues from its file; DIR may be relative, and only its owner has access.
answer "$tmp/plain" "$long: what is it?"
cd "$tmp" || exit 1
answer "$tmp/first" "$long: what is it?" --state kept
[ "$cached" = 0 ] || fail "cached tokens where nothing was kept: $cached"
answer "$tmp/second" "$long: what is it?" --state "$tmp/kept"
[ "$cached" -gt 1000 ] || fail "cached tokens in another process: $cached"
same "$tmp/plain" "$tmp/first" "with --state"
same "$tmp/plain" "$tmp/second" "from a file"
[ "$(stat -c %a kept)$(stat -c %a kept/*.prefix | sort -u)" = 700600 ] || fail "modes: $(ls -la kept)"

# A file with a flipped bit, and one that was cut, are reported once, also where the daemons' messages are hidden. The
# text is the same.
for harm in 'printf "\\377" | dd of="$f" bs=1 seek=$(($(stat -c %s "$f") / 2)) conv=notrunc status=none' \
    'truncate -s -100 "$f"'; do
    f=$(ls -S kept/*.prefix | head -1)
    eval "$harm"
    ntx run "$demo" "$long: what is it?" -n 24 --temp 0 --ctx 2048 --state kept >"$tmp/out" 2>"$tmp/err" ||
        fail "$harm: $(cat "$tmp/err")"
    [ "$(grep -c "^ntx: $tmp/kept/.*\.prefix is not used" "$tmp/err")" = 1 ] || fail "$harm: $(cat "$tmp/err")"
    same "$tmp/plain" "$tmp/out" "$harm"
done

# The same weights with another key of the model give other values: neither uses the state of the other.
for base in 10000 20000; do
    model "$tmp/base.gguf" --arch llama --layers 2 --rope-base $base --ctx 2048
    ntx run "$tmp/base.gguf" "${long:0:2000}" --raw -n 4 --temp 0 --ctx 2048 --state bases \
        --quiet --stats "$tmp/stats" >"$tmp/out" 2>"$tmp/err" || fail "rope base $base: $(cat "$tmp/err")"
    [ "$(stat_of "$tmp/stats" cached_tokens)" = 0 ] || fail "rope base $base goes on from another's state"
done
ntx run "$tmp/base.gguf" "${long:0:2000}" --raw -n 4 --temp 0 --ctx 2048 --state bases \
    --quiet --stats "$tmp/stats" >"$tmp/out" 2>"$tmp/err" || fail "rope base again: $(cat "$tmp/err")"
[ "$(stat_of "$tmp/stats" cached_tokens)" -gt 1000 ] || fail "its own state is not used"

# The bytes are limited; a directory that another process uses, or that others may write to, is reported, and the answer
# comes.
size=$(stat -c %s kept/*.prefix | sort -n | tail -1)
answer "$tmp/third" "$long: and why?" --state kept --state-max $((size + size / 2))
[ "$(files kept)" = 1 ] || fail "more than --state-max: $(ls -la kept)"
for harm in "flock kept" "env --"; do
    [ "$harm" = "flock kept" ] || { chmod 777 kept; rm -f kept/*; }
    $harm "$NTX_BIN/ntx" run "$demo" "$long: what is it?" -n 24 --temp 0 --ctx 2048 --state kept \
        -v >"$tmp/out" 2>"$tmp/err" || fail "$harm: $(cat "$tmp/err")"
    [ "$(grep -c 'prefixes are not kept over restarts: .*\(in use by another\|only we may write\)' "$tmp/err")" = 1 ] ||
        fail "$harm: $(cat "$tmp/err")"
    same "$tmp/plain" "$tmp/out" "$harm"
done
[ "$(files kept)" = 0 ] || fail "written where others may write"
ntx run "$demo" x --state-max none 2>/dev/null; [ $? = 100 ] || fail "--state-max none"

# A conversation is saved by name and continued by another process with its state from a file: the text is as if all had
# been computed.
chat() { # OUT WORDS [options]: lines of WORDS are messages and commands
    local out=$1 words=$2; shift 2
    printf '%b' "$words" | ntx run "$demo" "$@" -n 24 --temp 0 --ctx 2048 --stats "$tmp/stats" >"$out" 2>"$tmp/err"
}
export XDG_RUNTIME_DIR=$tmp/run
mkdir -m 700 "$tmp/run"
daemons() { # DIR COMMANDS: with daemons that keep state there
    : >"$tmp/up"
    "$NTX_BIN/ntx" up "$demo" --ctx 2048 --state "$1" 2>>"$tmp/up" & up=$!
    cleanup+=("kill $up 2>/dev/null")
    wait_for 20 grep -q '^ntx: ready' "$tmp/up" || fail "ntx up: $(cat "$tmp/up")"
    eval "$2"
    ntx stop && wait $up || fail "ntx stop: $(cat "$tmp/up")"
}
talk() { ntx chat -n 24 --temp 0 "$@" >"$tmp/a" 2>"$tmp/err"; }
daemons talks 'printf "Tell me about this: %s\nAnd then?\n/save my-talk\n" "${long//[^a-zA-Z ]/ }" | talk' ||
    fail "a chat: $(cat "$tmp/err")"
grep -q '2 turns saved as my-talk' "$tmp/err" || fail "/save: $(cat "$tmp/err")"
[ "$(stat -c %a "$XDG_STATE_HOME/ntx/chats" "$XDG_STATE_HOME/ntx/chats/my-talk.json" | tr '\n' ' ')" = "700 600 " ] ||
    fail "modes of a conversation"
cp "$XDG_STATE_HOME/ntx/chats/my-talk.json" "$tmp/saved"
chat "$tmp/b" "What is your name?\n/list\n" --resume || fail "--resume: $(cat "$tmp/err")"
grep -q 'my-talk goes on after 2 turns' "$tmp/err" && grep -q '^  20.* my-talk$' "$tmp/err" ||
    fail "--resume: $(cat "$tmp/err")"
[ "$(stat_of "$tmp/stats" cached_tokens)" = 0 ] || fail "cached tokens without --state"
grep -q 'What is your name' "$XDG_STATE_HOME/ntx/chats/my-talk.json" || fail "it was not saved after its answer"
cp "$tmp/saved" "$XDG_STATE_HOME/ntx/chats/my-talk.json"
chat "$tmp/c" "What is your name?\n" my-talk --resume --state talks || fail "--resume NAME: $(cat "$tmp/err")"
[ "$(stat_of "$tmp/stats" cached_tokens)" -gt 500 ] || fail "cached tokens of a conversation: $(cat "$tmp/stats")"
same "$tmp/b" "$tmp/c" "a conversation whose state was kept"

cp "$tmp/saved" "$XDG_STATE_HOME/ntx/chats/my-talk.json"
daemons talks 'printf "What is your name?\n" | talk --resume my-talk' ||
    fail "ntx chat --resume NAME: $(cat "$tmp/err")"
same "$tmp/a" "$tmp/c" "a conversation of a service's"

# Saving does not replace another one of that name; a damaged or missing one gives one line.
daemons talks 'printf "hello\n/save my-talk\n" | talk && fail "another conversation was overwritten"'
grep -q 'a conversation my-talk is there already' "$tmp/err" || fail "a name that is taken: $(cat "$tmp/err")"
grep -q hello "$XDG_STATE_HOME/ntx/chats/my-talk.json" && fail "another conversation was written over"
head -c 100 "$tmp/saved" >"$XDG_STATE_HOME/ntx/chats/torn.json"
for name in torn none 'no/name'; do
    chat "$tmp/d" 'hello\n' "$name" --resume && fail "--resume $name"
    [ "$(grep -c 'not a conversation\|no conversation is named\|is no name' "$tmp/err")" = 1 ] ||
        fail "--resume $name: $(cat "$tmp/err")"
done
finish "state outlives its process, and conversations theirs"
