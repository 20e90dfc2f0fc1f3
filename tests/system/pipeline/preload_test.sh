#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The uses of experts outlive a load: the next one reads the hottest experts before anybody asks, into empty frames, and
# then misses fewer. The text stays the same. A damaged file is not used.
. "$(dirname "$0")/../../lib/test.sh"
export NTX_RUNTIME=$tmp/rt XDG_CACHE_HOME=$tmp/cache
model "$tmp/m.gguf" --layers 5 --embd 256 --heads 8 --kv 2 --expert-ff 256 --shared-ff 256 --arch qwen2moe \
    --experts 24 --experts-used 4 --type Q8_0 --seed 6
bundle=$((3 * 256 * 256 / 32 * 34))

counter() { "$NTX_BIN/ntx-top" --json --interval 0.1 | python3 -c "
import json, sys
print(json.load(sys.stdin)['counters']['$1'])"; }
# begin: a load of its own.
begin() {
    rm -f "$tmp/up" # else the load before says that it is ready
    "$NTX_BIN/ntx" up "$tmp/m.gguf" --ram 20M --ctx 128 --draft off 2>"$tmp/up" &
    up=$!
    cleanup+=("kill -9 $up 2>/dev/null")
    wait_for 20 grep -q ready "$tmp/up" || fail "not ready: $(cat "$tmp/up")"
}
# answer NAME TOKENS
answer() {
    ntx generate "Once upon a time" --raw --ignore-eos -n "$2" --temp 0 --quiet --stats "$tmp/$1.s" >"$tmp/$1" ||
        fail "generate, $1"
}
end() { "$NTX_BIN/ntx" stop || fail "stop"; wait "$up"; }

begin
answer first 8
answer learned 90
[ "$(counter comp_preload_bytes)" = 0 ] || fail "something was preloaded before anything was known"
end
heat=$(find "$tmp/cache/ntx/heat" -name '*.json')
[ -s "$heat" ] || fail "nothing was kept"
[ "$(stat -c %a "$heat")" = 600 ] || fail "others may read $heat: $(stat -c %a "$heat")"

begin
most=$((bundle * $(stat_of "$tmp/first.s" expert_frames)))
wait_for 20 eval '[ "$(counter comp_preload_bytes)" -ge $((most * 3 / 4)) ]' ||
    fail "$(counter comp_preload_bytes) bytes of $most were preloaded"
[ "$(counter comp_preload_bytes)" -le "$most" ] || fail "more was preloaded than there are frames"
answer second 8
end
same "$tmp/first" "$tmp/second" "the text after preloading"
before=$(stat_of "$tmp/first.s" expert_hit_rate) after=$(stat_of "$tmp/second.s" expert_hit_rate)
python3 -c "import sys; sys.exit(not $after > $before + 0.1)" || fail "hits: $before before, $after with preloading"
echo "hits: $before before, $after with preloading"

echo '{"ntx_heat":1,"experts":24,"rows":[1,2],"uses":[]}' >"$heat"
begin
answer damaged 8
[ "$(counter comp_preload_bytes)" = 0 ] || fail "something was preloaded by a damaged file"
end
grep -q "uses of experts begin anew: .*damaged" "$tmp/up" || fail "a damaged file is not named: $(cat "$tmp/up")"
same "$tmp/first" "$tmp/damaged" "the text with a damaged file"
