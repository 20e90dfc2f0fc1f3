#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# --draft auto, the default: the text is the text without drafts, byte for byte; lookup and the drafter that the model's
# card names draft where it pays, and a drafter on the card never prevents a run.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
here=$(cd "$(dirname "$0")" && pwd) models=$(cd "$here/../../../models" && pwd)
# carded NAME: demo with a card that names it
carded() {
    PYTHONPATH=$here/../../lib python3 -c 'import sys, gguf_edit as e
g = e.Gguf(sys.argv[1])
g.keys["ntx.drafter"] = (e.STR, sys.argv[3])
g.write(sys.argv[2])' "$models/demo.gguf" "$tmp/carded.gguf" "$1" || fail "a card"
}
story="Tom had a red ball. Tom had a red ball. Tom had a red ball. Tom had a"
# auto WHAT MODEL HOW...: compares the text without drafts with that of the default
auto() {
    local what=$1 model=$2; shift 2
    ntx run "$model" "$story" --raw -n 100 --ignore-eos --quiet --ctx 256 --draft off "$@" >"$tmp/plain" ||
        fail "$what: without"
    ntx run "$model" "$story" --raw -n 100 --ignore-eos --quiet --ctx 256 --stats "$tmp/s" "$@" >"$tmp/got" ||
        fail "$what"
    same "$tmp/plain" "$tmp/got" "$what"
    [ "$(stat_of "$tmp/s" draft)" = auto ] || fail "$what: draft is $(stat_of "$tmp/s" draft)"
    sed -n '/"draft_hits"/,/}/p' "$tmp/s" >"$tmp/hits"
    echo "$what: $(stat_of "$tmp/s" accepted_per_pass) tokens a pass of $(stat_of "$tmp/s" \
        draft_nodes_per_pass) drafts"
}
more_than() {
    awk -v x="$(stat_of "$1" "$2")" -v y="$3" 'BEGIN {exit !(x > y)}' ||
        fail "$2 is $(stat_of "$1" "$2"), not more than $3"
}
streamed=(--ram 16M --rows 32 --link nvme=100M)
auto "in memory" "$models/demo.gguf" --temp 0.8 --seed 5
auto "streamed" "$models/demo.gguf" --temp 0 "${streamed[@]}"
more_than "$tmp/s" accepted_per_pass 1.05 # how many pay depends on what else the machine does
more_than "$tmp/hits" lookup 4
# which hangs on nothing but the text
auto "streamed, so many drafts" "$models/demo.gguf" --temp 0 "${streamed[@]}" --draft-nodes 8
more_than "$tmp/s" accepted_per_pass 1.2
more_than "$tmp/hits" lookup 10
auto "experts" "$models/demo-moe.gguf" --temp 0.7 --seed 4 --ram 24M
auto "so many drafts" "$models/demo.gguf" --temp 0 --draft-nodes 8
more_than "$tmp/s" draft_nodes_per_pass 2
cp "$models/demo-draft.gguf" "$tmp/small.gguf"
carded small.gguf
auto "a drafter by the card" "$tmp/carded.gguf" --temp 0.8 --seed 9 --ram 200M --draft-nodes 15
more_than "$tmp/hits" file 10
auto "a card, and little memory" "$tmp/carded.gguf" --temp 0 --ram 9M
grep -q '"file"' "$tmp/hits" && fail "a drafter beyond an eighth of --ram is used"
for name in none.gguf ../small.gguf "$models/demo-draft.gguf"; do
    carded "$name"
    auto "a card that names $name" "$tmp/carded.gguf" --temp 0
    grep -q '"file"' "$tmp/hits" && fail "$name is used"
done
echo "no model" >"$tmp/small.gguf"
carded small.gguf
auto "a card that names no drafter" "$tmp/carded.gguf" --temp 0
grep -q '"file"' "$tmp/hits" && fail "what is no drafter is used"
:
