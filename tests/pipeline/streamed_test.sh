#!/bin/bash
# Streamed equals resident, bit for bit: logits of every token for several budgets, thread counts, batch sizes, chunk sizes,
# instruction sets and sources; and the statistics tell where the bytes lay.
. "$(dirname "$0")/lib.sh"
ids=1,259,306,337,326,328,514,357,477,421,371,357,508,436,330,300,301,302,303,304
for type in Q4_K_M Q8_0 F32 Q5_1; do
    model "$tmp/m.gguf" --layers 6 --embd 512 --ff 1536 --heads 8 --kv 2 --type $type --seed 7
    ntx logits "$tmp/m.gguf" --tokens $ids -o "$tmp/resident" --ram 1G || fail "resident logits of $type"
    n=0
    for options in "--ram 14M --ctx 64" "--ram 16M --ctx 64 --threads 1" "--ram 15M --ctx 64 --rows 1" "--ram 16M --ctx 64 --rows 3 --threads 3" \
        "--ram 16M --ctx 64 --chunk 100K" "--ram 1G --rows 1" "--ram 16M --ctx 64 --kernel avx2" "--ram 16M --ctx 64 --kernel generic" "--ram 16M --ctx 64 --source pread"; do
        case $options in *avx2*) grep -qw avx2 /proc/cpuinfo || continue;; esac
        n=$((n + 1))
        # shellcheck disable=SC2086
        ntx logits "$tmp/m.gguf" --tokens $ids -o "$tmp/streamed" $options || fail "$type with $options"
        same "$tmp/resident" "$tmp/streamed" "$type with $options"
    done
done
size=$(stat -c %s "$tmp/resident")
[ "$size" -gt 0 ] && [ $((size % (20 * 4))) = 0 ] || fail "logits file of $size bytes is no [20 x n_vocab] of float32"

# Text, and what the statistics say of it.
ntx run "$tmp/m.gguf" "Once upon a time" --raw -n 24 --ignore-eos --ram 1G --stats "$tmp/s1" --quiet >"$tmp/t1" || fail "resident run"
ntx run "$tmp/m.gguf" "Once upon a time" --raw -n 24 --ignore-eos --ram 14M --ctx 64 --stats "$tmp/s2" --quiet >"$tmp/t2" || fail "streamed run"
same "$tmp/t1" "$tmp/t2" "text"
[ "$(stat_of "$tmp/s1" bytes_storage)" = 0 ] || fail "1G holds the whole model, yet bytes_storage is $(stat_of "$tmp/s1" bytes_storage)"
[ "$(stat_of "$tmp/s1" generated_tokens)" = 24 ] || fail "generated_tokens"
storage=$(stat_of "$tmp/s2" bytes_storage)
host=$(stat_of "$tmp/s2" bytes_host)
all=$(stat_of "$tmp/s2" bytes_model)
[ "$storage" -gt 0 ] && [ $((storage + host)) = "$all" ] || fail "placement: $storage + $host is not $all"
# 24 tokens take 24 or 25 passes; prefetching fetches at most one pass more
read_=$(stat_of "$tmp/s2" bytes_read)
[ "$read_" -ge $((storage * 23)) ] && [ "$read_" -le $((storage * 27 + 4000000)) ] || fail "bytes_read $read_ for $storage of storage"
echo "streamed equals resident; $storage of $all bytes streamed per pass"
