#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Streamed equals resident, bit for bit: logits of every token for several budgets, thread counts, batch sizes, chunk
# sizes, instruction sets and sources. The statistics show where the bytes were.
. "$(dirname "$0")/../../lib/test.sh"
ids=1,259,306,337,326,328,514,357,477,421,371,357,508,436,330,300,301,302,303,304
for type in Q4_K_M Q8_0 F32 Q5_1; do
    model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type $type --seed 7
    ntx logits "$tmp/m.gguf" --tokens $ids -o "$tmp/resident" --ram 1G || fail "resident logits of $type"
    n=0
    for options in "--ram 14M --ctx 64" "--ram 16M --ctx 64 --threads 1" "--ram 15M --ctx 64 --rows 1" \
        "--ram 16M --ctx 64 --rows 3 --threads 3" \
        "--ram 16M --ctx 64 --chunk 100K" "--ram 1G --rows 1" "--ram 16M --ctx 64 --kernel avx2" \
        "--ram 16M --ctx 64 --kernel generic" "--ram 16M --ctx 64 --source pread"; do
        case $options in *avx2*) grep -qw avx2 /proc/cpuinfo || continue;; esac
        n=$((n + 1))
        # shellcheck disable=SC2086
        ntx logits "$tmp/m.gguf" --tokens $ids -o "$tmp/streamed" $options || fail "$type with $options"
        same "$tmp/resident" "$tmp/streamed" "$type with $options"
    done
done
size=$(stat -c %s "$tmp/resident")
[ "$size" -gt 0 ] && [ $((size % (20 * 4))) = 0 ] || fail "logits file of $size bytes is no [20 x n_vocab] of float32"

# Text, and its statistics.
ntx run "$tmp/m.gguf" "Once upon a time" --raw -n 24 --ignore-eos --ram 1G --stats "$tmp/s1" --quiet >"$tmp/t1" ||
    fail "resident run"
ntx run "$tmp/m.gguf" "Once upon a time" --raw -n 24 --ignore-eos --ram 14M --ctx 64 --stats "$tmp/s2" \
    --quiet >"$tmp/t2" || fail "streamed run"
same "$tmp/t1" "$tmp/t2" "text"
[ "$(stat_of "$tmp/s1" bytes_storage)" = 0 ] ||
    fail "1G holds the whole model, yet bytes_storage is $(stat_of "$tmp/s1" bytes_storage)"
[ "$(stat_of "$tmp/s1" generated_tokens)" = 24 ] || fail "generated_tokens"
storage=$(stat_of "$tmp/s2" bytes_storage)
host=$(stat_of "$tmp/s2" bytes_host)
all=$(stat_of "$tmp/s2" bytes_model)
[ "$storage" -gt 0 ] && [ $((storage + host)) = "$all" ] || fail "placement: $storage + $host is not $all"
# 24 tokens take 24 or 25 passes; prefetching fetches at most one pass more
read_=$(stat_of "$tmp/s2" bytes_read)
[ "$read_" -ge $((storage * 23)) ] && [ "$read_" -le $((storage * 27 + 4000000)) ] ||
    fail "bytes_read $read_ for $storage of storage"

# The embedding's rows: if everything fits, they stay in memory and the drive is not read; if everything but them fits,
# or less, they are read. Tied ones are in memory once, and are taken from the output matrix.
model "$tmp/r.gguf" --layers 2 --embd 512 --ff 1024 --heads 8 --kv 2 --type Q4_K_M --seed 7 --vocab-size 32000
rows() {
    ntx run "$tmp/$3.gguf" "Once upon a time" --raw -n 24 --ignore-eos --ctx 64 --ram "$1" \
        --stats "$tmp/$2.stats" --quiet >"$tmp/$2.text" || fail "rows with $1"
}
rows 1G all r
ram=$(ntx plan "$tmp/r.gguf" --machine ram=1G,drive=3G --ram 1G --ctx 64 --json |
    sed -n 's/.*"smallest": *\([0-9]*\).*/\1/p')
table=$((32000 * 512 * 9 / 16))
[ "$(stat_of "$tmp/all.stats" bytes_rows)" = $table ] ||
    fail "1G holds the table of $table bytes, yet $(stat_of "$tmp/all.stats" bytes_rows) of it stay"
[ "$(stat_of "$tmp/all.stats" bytes_read)" = 0 ] ||
    fail "all is in memory, and $(stat_of "$tmp/all.stats" bytes_read) bytes were read"
seen=0
for ((r = ram; r < ram + 64000000; r += 2000000)); do
    rows $r some r
    same "$tmp/all.text" "$tmp/some.text" "text with $r"
    [ "$(stat_of "$tmp/some.stats" bytes_rows)" = 0 ] || break
    [ "$(stat_of "$tmp/some.stats" bytes_storage)" = 0 ] || continue
    seen=1
    [ "$(stat_of "$tmp/some.stats" bytes_read)" -ge $((24 * 4096)) ] || fail "no rows were read with $r"
done
[ $seen = 1 ] && [ "$(stat_of "$tmp/some.stats" bytes_rows)" = $table ] ||
    fail "no budget has all but the rows, or none has them"
model "$tmp/tied.gguf" --layers 2 --embd 512 --ff 1024 --heads 8 --kv 2 --type Q4_K_M --seed 7 --vocab-size 32000 --tied
rows 1G tied tied
[ "$(stat_of "$tmp/tied.stats" bytes_rows)" = 0 ] || fail "a tied embedding is there twice"
[ "$(stat_of "$tmp/tied.stats" bytes_read_per_token)" = 0.0 ] ||
    fail "a tied embedding is in memory, and $(stat_of "$tmp/tied.stats" bytes_read_per_token) bytes a token were read"
ram=$(ntx plan "$tmp/tied.gguf" --machine ram=1G,drive=3G --ram 1G --ctx 64 --json |
    sed -n 's/.*"smallest": *\([0-9]*\).*/\1/p')
rows $ram least tied
[ "$(stat_of "$tmp/least.stats" bytes_storage)" -gt 0 ] || fail "$ram bytes hold all of the tied model"
same "$tmp/tied.text" "$tmp/least.text" "text of the tied model, streamed"
echo "streamed equals resident; $storage of $all bytes streamed per pass"
