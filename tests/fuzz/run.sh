#!/bin/sh
# run.sh NAME SECONDS: runs one fuzzer for a while on inputs made on the spot. A crash leaves its input and fails.
set -eu
name=$1 seconds=$2
fuzzer=$NTX_BUILD/tests/fuzz_$name
if [ ! -x "$fuzzer" ]; then
    echo "skipped: no clang with libFuzzer, so fuzz_$name was not built"
    exit 77
fi
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/corpus"

seeds_gguf() {
    # the whole header and a piece of data each; then a header of two keys and a tensor, for short inputs
    n=0
    for options in "--arch llama --rope-freqs" "--arch qwen2 --tied" "--arch qwen3 --type Q8_0 --head-dim 32"; do
        n=$((n + 1))
        # shellcheck disable=SC2086
        "$NTX_BIN/ntx-mkmodel" --layers 1 --embd 32 --ff 32 --heads 2 --kv 1 $options "$dir/m.gguf" >"$dir/log"
        head -c 24000 "$dir/m.gguf" >"$dir/corpus/model$n"
    done
    printf 'GGUF\3\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a\4\0\0\0\7\0\0\0\1\0\0\0\0\0\0\0b\11\0\0\0\10\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0x\2\0\0\0\0\0\0\0yz\1\0\0\0\0\0\0\0t\2\0\0\0\40\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0\10\0\0\0\0\0\0\0\0\0\0\0' >"$dir/corpus/small"
    for word in GGUF general.architecture general.alignment llama qwen2 qwen3 .block_count .expert_count .rope.scaling.type yarn \
        .attention.head_count_kv tokenizer.ggml.tokens token_embd.weight blk.0.attn_q.weight split.count; do
        echo "\"$word\""
    done >"$dir/words"
}

touch "$dir/words"
"seeds_$name"
cd "$dir"
if ! "$fuzzer" -max_total_time="$seconds" -max_len=24000 -rss_limit_mb=1024 -timeout=10 -dict="$dir/words" -print_final_stats=1 \
    -artifact_prefix="$NTX_BUILD/tests/fuzz_$name-" "$dir/corpus" >"$dir/log" 2>&1; then
    tail -n 60 "$dir/log"
    echo "fuzz_$name failed; its input is kept as $NTX_BUILD/tests/fuzz_$name-*"
    exit 1
fi
grep -E 'number_of_executed_units|cov:' "$dir/log" | tail -n 2
