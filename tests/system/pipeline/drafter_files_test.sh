#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Drafters that are no models (scripts and indexes), and several drafters at once: the text is the text without, byte
# for byte. A script gives the tokens per pass that its chances imply; an index of a text makes that text cheap; any
# other file, or one of another vocabulary, is refused in one line.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
models=$(dirname "$0")/../../../models
demo=$models/demo.gguf small=$models/demo-draft.gguf
story="Once upon a time there was a little girl who" n=120
run=(ntx run "$demo" "$story" --raw --ignore-eos --quiet --ctx 256 --temp 0.8 --seed 3)
"${run[@]}" -n $n --json --draft off >"$tmp/lines" || fail "plain"
"${run[@]}" -n $n --draft off >"$tmp/plain" || fail "plain"
ids=$(sed -n 's/^{"text".*"token": *\([0-9]*\)}.*/\1/p' "$tmp/lines" | tr '\n' ' ')
[ "$(wc -w <<<"$ids")" = $n ] || fail "ids: $ids"

# with_drafter WHAT LEAST MOST HOW...: the plain text with so many tokens a pass
with_drafter() {
    local what=$1 least=$2 most=$3; shift 3
    "${run[@]}" -n $n --stats "$tmp/s" "$@" >"$tmp/got" || fail "$what"
    same "$tmp/plain" "$tmp/got" "$what"
    local per; per=$(stat_of "$tmp/s" accepted_per_pass)
    echo "$what: $per tokens a pass of $(stat_of "$tmp/s" draft_nodes_per_pass) drafts"
    awk -v x="$per" -v least="$least" -v most="$most" 'BEGIN {exit !(x >= least && x <= most)}' ||
        fail "$what: $per tokens a pass"
}
script() { printf 'ntx-script 1\n%s\nseed 5\ntext 1 2 3\ntext %s\n' "$1" "$ids" >"$tmp/script"; }
script "chance 1"
with_drafter "a script that is always right" 14 16 --draft "$tmp/script" --draft-nodes 15
script "chance 0.8"
with_drafter "a script of 0.8 a token" 3.5 6.5 --draft "$tmp/script" --draft-nodes 15
with_drafter "the same, streamed" 3.5 6.5 --draft "$tmp/script" --draft-nodes 15 --ram 9M --rows 32
script $'chance 0.6 0.3\nbeside 3'
with_drafter "a tree" 1.5 2.6 --draft "$tmp/script" --draft-nodes 24
script "chance 0.8"
with_drafter "a script, a small model and look-up" 3.5 14 --draft "$tmp/script,lookup,$small" --draft-nodes 20
sed -n '/"draft_hits"/,/}/p' "$tmp/s" >"$tmp/hits"
[ "$(stat_of "$tmp/hits" file1)" -gt 15 ] && [ "$(stat_of "$tmp/hits" file2)" -gt 5 ] &&
    [ "$(stat_of "$tmp/hits" file)" -ge "$(stat_of "$tmp/hits" file1)" ] || fail "hits: $(cat "$tmp/hits")"

# Where each row reads experts of its own, drafts cost more than they gain; before any pass shows that, the prediction
# does.
model "$tmp/x.gguf" --arch qwen3moe --layers 6 --embd 256 --heads 4 --kv 2 --head-dim 64 --experts 64 --experts-used 4 \
    --expert-ff 256 --type Q4_0 --seed 3
spread=(ntx run "$tmp/x.gguf" one --raw --ignore-eos --quiet --temp 0.8 --seed 3 --ram 15M --ctx 64 --rows 32 -n 24
    --link nvme=100M) # a slow drive, so that the experts cost the most
"${spread[@]}" --json --draft off >"$tmp/lines" || fail "spread experts: plain"
printf 'ntx-script 1\nchance 0.8\nseed 5\ntext %s\n' \
    "$(sed -n 's/^{"text".*"token": *\([0-9]*\)}.*/\1/p' "$tmp/lines" | tr '\n' ' ')" >"$tmp/spread"
"${spread[@]}" --draft "$tmp/spread" --stats "$tmp/s" >"$tmp/got" || fail "spread experts"
# (About 13 without that. On a busy machine a pass waits for processors, too, and a draft seems cheaper than it is.)
awk -v x="$(stat_of "$tmp/s" draft_nodes_per_pass)" -v busy="$(patience)" 'BEGIN {exit !(x < (busy > 1 ? 8 : 2))}' ||
    fail "spread experts: $(stat_of "$tmp/s" draft_nodes_per_pass) drafts a pass"

# An index, of the text itself among others.
{ printf '%s' "$story"; cat "$tmp/plain"; } >"$tmp/known"
ntx draft-index "$demo" "$models/held-out.txt" "$tmp/known" -o "$tmp/index" --quiet || fail "draft-index"
with_drafter "an index" 6 16 --draft "$tmp/index" --draft-nodes 15
with_drafter "an index and two small models" 6 16 --draft "$small,$tmp/index,$demo" --draft-nodes 15
ntx draft-index "$demo" "$models/held-out.txt" -o "$tmp/other" --quiet || fail "draft-index"
with_drafter "an index of other texts" 1 4 --draft "$tmp/other" --draft-nodes 15

# refused WORDS COMMAND...
refused() {
    local words=$1; shift
    timeout $((60 * $(patience))) "$NTX_BIN/ntx" "$@" >"$tmp/out" 2>"$tmp/err" && fail "$*: not refused"
    [ "$(wc -l <"$tmp/err")" = 1 ] && grep -q -- "$words" "$tmp/err" || fail "$*: $(cat "$tmp/err")"
}
echo "some text" >"$tmp/text"
refused "--draft $tmp/text: the drafter: this file is neither a small model" \
    run "$demo" x --raw -n 1 --quiet --draft "$tmp/text"
refused "more than 3 files" run "$demo" x --raw -n 1 --quiet --draft "a,b,c,d"
printf 'ntx-script 1\nchance 2\n' >"$tmp/script"
refused "line 2 of the script" run "$demo" x --raw -n 1 --quiet --draft "$tmp/script"
model "$tmp/m.gguf" --layers 2 --embd 64 --ff 64 --heads 2 --kv 2 --type F16 --seed 1
refused "made for another vocabulary" run "$tmp/m.gguf" x --raw -n 1 --quiet --draft "$tmp/index"
refused "-o FILE is needed" draft-index "$demo" "$tmp/text"
refused "none.txt: No such file" draft-index "$demo" "$tmp/none.txt" -o "$tmp/x"
[ ! -e "$tmp/x" ] && [ ! -e "$tmp/x.part" ] || fail "half an index was left"
