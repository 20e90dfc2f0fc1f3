#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Answers with a JSON schema or a grammar conform to it, at any temperature, streamed, with the daemons of a pipeline;
# drafts do not change them.
. "$(dirname "$0")/../../lib/test.sh"
export XDG_CACHE_HOME=$tmp/cache # draft statistics are kept there
demo=$(dirname "$0")/../../../models/demo.gguf
cat >"$tmp/schema" <<'END'
{"type": "object", "additionalProperties": false, "required": ["name", "age", "tags"], "properties": {
  "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 3, "maximum": 99},
  "tags": {"type": "array", "maxItems": 4, "items": {"enum": ["red", "green"]}},
  "note": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}}}
END
valid() {
    python3 -c '
import json, sys
def ok(v):
    assert set(v) <= {"name", "age", "tags", "note"} and len(v["name"]) <= 12, v
    assert type(v["age"]) is int and 3 <= v["age"] <= 99, v
    assert len(v["tags"]) <= 4 and set(v["tags"]) <= {"red", "green"}, v
    if v.get("note") is not None:
        ok(v["note"])
ok(json.load(open(sys.argv[1])))' "$1" || fail "$2: $(cat "$1")"
}
for seed in 1 2 3; do
    ntx run "$demo" "Tell me." --json-schema "$tmp/schema" --temp 1 --seed $seed --quiet --min-p 0 \
        --top-k 0 >"$tmp/t$seed" || fail "seed $seed"
    valid "$tmp/t$seed" "seed $seed"
done
ntx run "$demo" "Tell me." --json-schema "$tmp/schema" --temp 1 --seed 2 --quiet --min-p 0 --top-k 0 --draft lookup \
    --draft-nodes 12 --stats "$tmp/s" >"$tmp/drafts" || fail "drafts"
same "$tmp/t2" "$tmp/drafts" "drafts"
ntx run "$demo" "Tell me." --json-schema "$tmp/schema" --temp 0 --ignore-eos --quiet --repeat-penalty 1.3 >"$tmp/t" ||
    fail "greedy, past the end"
valid "$tmp/t" "greedy, past the end"
printf 'root ::= "yes" | "no, " [a-z]{3,8} " " ~"." "."' >"$tmp/grammar"
ntx run "$demo" "Well?" --grammar "$tmp/grammar" --temp 1 --seed 5 --quiet --raw -n 60 >"$tmp/t" || fail "a grammar"
grep -Eqx 'yes|no, [a-z]{3,8} [^.]*\.?' "$tmp/t" || fail "a grammar: $(cat "$tmp/t")"
refused() {
    local words=$1; shift
    ntx run "$demo" "Tell me." --quiet "$@" >"$tmp/out" 2>"$tmp/err" && fail "$words: taken"
    grep -q "$words" "$tmp/err" || fail "$words: $(cat "$tmp/err")"
    [ ! -s "$tmp/out" ] || fail "$words: text came"
}
printf 'root ::= root "a" | "b"' >"$tmp/bad"
refused "left recursion" --grammar "$tmp/bad"
echo '{"not": {}}' >"$tmp/bad"
refused "nothing can be written" --json-schema "$tmp/bad"
printf '{} root ::= "a"' >"$tmp/bad"
refused "no JSON" --json-schema "$tmp/bad"
refused "cannot read it" --json-schema "$tmp/nothing"
refused "exclude each other" --json-schema "$tmp/schema" --grammar "$tmp/grammar"
refused "more memory than --ram leaves\|--ram leaves for" --json-schema "$tmp/schema" --ram 9M --ctx 128
