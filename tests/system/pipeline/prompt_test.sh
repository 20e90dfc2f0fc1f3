#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Where a prompt's parts come from, and errors about wrong commands before a model is loaded.
. "$(dirname "$0")/../../lib/test.sh"
model "$tmp/m.gguf" --ctx 128
model "$tmp/chatml.gguf" --chat-template chatml
# How many tokens the prompt had, and the greedy answer to it: the same for the same prompt.
answer() {
    local out=$1; shift
    ntx run "$tmp/m.gguf" "$@" --raw -n 8 --ignore-eos --ram 64M --ctx 128 \
        --quiet --stats "$tmp/stats" >"$out" 2>"$tmp/err" || fail "run $*: $(cat "$tmp/err")"
    stat_of "$tmp/stats" prompt_tokens >>"$out"
}
# refused CODE PATTERN COMMAND...: with a model so large that a load would be noticed by its time
refused() {
    local code=$1 pattern=$2; shift 2
    "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
    [ $? = "$code" ] || fail "$*: not refused with $code: $(cat "$tmp/err")"
    grep -q -e "$pattern" "$tmp/err" || fail "$*: lacks '$pattern': $(cat "$tmp/err")"
    [ "$code" = 100 ] || [ "$(wc -l <"$tmp/err")" = 1 ] || fail "$*: more than a line: $(cat "$tmp/err")"
}

# One newline at the end of a pipe or a file is removed, and no other.
answer "$tmp/a" 'ab c'
printf 'ab c\n' | answer "$tmp/b"
same "$tmp/a" "$tmp/b" "a pipe's last newline"
printf 'ab c\n' >"$tmp/prompt"
answer "$tmp/b" -f "$tmp/prompt"
same "$tmp/a" "$tmp/b" "a file's last newline"
answer "$tmp/a" $'ab c\n'
printf 'ab c\n\n' | answer "$tmp/b" -
same "$tmp/a" "$tmp/b" "only one newline is dropped"

# PROMPT, the file's text, the piped one, in this order.
answer "$tmp/a" $'ask\nfile\npiped'
printf 'piped\n' | answer "$tmp/b" ask - -f <(printf 'file\n')
same "$tmp/a" "$tmp/b" "all parts"
answer "$tmp/a" $'ask\npiped'
printf 'piped\n' | answer "$tmp/b" ask -
same "$tmp/a" "$tmp/b" "PROMPT -"
cmp -s "$tmp/a" <(answer /dev/stdout ask) && fail "the piped text counts for nothing"
refused 100 "unexpected argument 'more'; a prompt of several words goes in quotes" ntx run "$tmp/m.gguf" one more

# Input that the command does not use stays in the pipe, with a note; no note without input, or for a file.
printf 'kept\n' |
    { ntx run "$tmp/m.gguf" x --raw -n 1 --ram 64M --ctx 128 >/dev/null 2>"$tmp/err"; read \
    -r rest; [ "$rest" = kept ] || fail "it was read: '$rest'"; } || exit 1
grep -q '^ntx: standard input is left unread.* -$' "$tmp/err" || fail "no note: $(cat "$tmp/err")"
[ "$(grep -c unread "$tmp/err")" = 1 ] || fail "noted twice"
for quiet in "--quiet <<<waits" "< $tmp/prompt" "< /dev/null" "< <(:)" "- <<<used"; do
    eval "ntx run $tmp/m.gguf x --raw -n 1 --ram 64M --ctx 128 $quiet" >/dev/null 2>"$tmp/err" || fail "run $quiet"
    ! grep -q unread "$tmp/err" || fail "noted with $quiet: $(cat "$tmp/err")"
done

# Errors before the model is loaded: --fault is only read by the load, which would fail otherwise.
run=(ntx run "$tmp/chatml.gguf" --ram 64M --fault nonsense)
refused 111 'no fault\|fault' "${run[@]}" x
refused 100 "chat-template: 'llama-9' is neither a name (llama-2, .* nor a file" "${run[@]}" x --chat-template llama-9
refused 111 "prompt.*No such file\|No such file.*" "${run[@]}" -f "$tmp/none"
refused 111 "none: cannot read the text: No such file" ntx perplexity "$tmp/m.gguf" "$tmp/none" --fault nonsense
refused 111 "$tmp: cannot read the text: Is a directory" ntx perplexity "$tmp/m.gguf" "$tmp" --fault nonsense
refused 111 "none" ntx calibrate "$tmp/m.gguf" --text "$tmp/none" -o "$tmp/s" --fault nonsense
refused 111 "none" ntx eval "$tmp/m.gguf" --questions "$tmp/none" --fault nonsense
refused 111 "a chat needs a form" ntx chat --raw --socket "$tmp/none"
refused 100 "'llama-9' is neither a name" ntx generate x --chat-template llama-9 --socket "$tmp/none"
# A template that does not parse.
sed 's/endfor %}/endfro %}/g' "$tmp/chatml.gguf" >"$tmp/strange.gguf"
[ "$(stat -c %s "$tmp/strange.gguf")" = "$(stat -c %s "$tmp/chatml.gguf")" ] || fail "the model's size has changed"
refused 111 "chat template, line 1: .*: use --raw" ntx run "$tmp/strange.gguf" x --ram 64M --fault nonsense

# A warning above the context that the model was trained for, not at it.
ntx run "$tmp/m.gguf" x --raw -n 1 --ram 64M --ctx 129 >/dev/null 2>"$tmp/err" || fail "--ctx 129"
grep -q -- '--ctx 129 is beyond the 128 tokens' "$tmp/err" || fail "no word of --ctx: $(cat "$tmp/err")"
ntx run "$tmp/m.gguf" x --raw -n 1 --ram 64M --ctx 128 2>&1 >/dev/null | grep -q beyond && fail "128 is not beyond"
echo "prompts are read as they should"
