#!/bin/bash
# `ntx plan` and `ntx doctor` as people meet them.
set -u
ntx=$NTX_BIN/ntx
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME=$dir/cache
fail() { echo "failed: $*" >&2; exit 1; }
has() { grep -qF -- "$2" <<<"$1" || fail "no '$2' in: $1"; }

# The published table: all 24 rows as printed, and the network below.
out=$("$ntx" plan llama-2-7b@f16 --profile "$NTX_SOURCE/bench/profiles/a6000.json" --ctx 2048 --compat) || fail "plan --compat"
[ "$(grep -cE '^(q|k|v|o|gate|up|down)_proj |^(qk|sv)_matmul |^softmax |^norm |^add ' <<<"$out")" = 24 ] || fail "24 rows: $out"
has "$out" "network: 2.87512e+13 OPs, 6.58611e+10 bytes, 226.88 ms; layers' weights 12.952 GB, KV 1.0737 GB"
has "$out" "network: 1.41697e+10 OPs, 1.43132e+10 bytes, 18.637 ms; layers' weights 12.952 GB, KV 1.0737 GB"
out=$("$ntx" plan llama-2-7b@f16 --profile "$NTX_SOURCE/bench/profiles/a6000.json" --ctx 2048) || fail "plan"
[ "$(grep -c '^lm_head' <<<"$out")" = 2 ] || fail "the corrected table has an output matrix"

# No profile, bad profile, bad names: one line, the right code.
out=$("$ntx" plan llama-8b@q8_0 2>&1); [ $? = 111 ] || fail "without a profile: $out"
has "$out" "ntx doctor"
out=$("$ntx" plan llama-8b@q9 --profile "$NTX_SOURCE/bench/profiles/desktop-ddr4.json" 2>&1); [ $? = 111 ] || fail "unknown type: $out"
has "$out" "q4_k_m"
"$ntx" plan >/dev/null 2>&1; [ $? = 100 ] || fail "no model is wrong usage"

# Every kept profile predicts every model; a slower emulated link is a slower prediction.
for p in "$NTX_SOURCE"/bench/profiles/*.json; do
    for m in llama-70b@q4_k_m llama-70b@q6_k mixtral-8x7b@q4_k_m qwen3-235b-a22b@q4_k_m gpt-oss-120b@mxfp4; do
        "$ntx" plan $m --profile "$p" --json >"$dir/out" || fail "$m with $p"
    done
done
speed() { "$ntx" plan llama-70b@q4_k_m --profile "$NTX_SOURCE/bench/profiles/$1.json" --json "${@:2}" | sed -n 's/^ "predicted_tok_s": \([0-9.]*\),*$/\1/p'; }
less() { awk -v a="$1" -v b="$2" -v f="$3" 'BEGIN {exit !(a > 0 && a < b * f)}' || fail "$1 is not less than $3 times $2"; }
less "$(speed desktop-ddr4 --link nvme=1.65G)" "$(speed desktop-ddr4)" 0.51
less "$(speed rtx3090-pcie3x8 --backend cuda --link h2d=3.25G)" "$(speed rtx3090-pcie3x8 --backend cuda)" 0.51

# KV in eighths is counted as such; what is not predicted is refused.
has "$("$ntx" plan llama-70b@q4_k_m --profile "$NTX_SOURCE/bench/profiles/desktop-ddr4.json" --kv-type q8_0)" "KV 0.174 MB per token"
has "$("$ntx" plan llama-70b@q4_k_m --profile "$NTX_SOURCE/bench/profiles/desktop-ddr4.json")" "KV 0.328 MB per token"
out=$("$ntx" plan llama-8b@q8_0 --profile "$NTX_SOURCE/bench/profiles/desktop-ddr4.json" --skip predictive 2>&1); [ $? = 111 ] || fail "--skip is not predicted: $out"

# Doctor measures (in a hurry here), stores, and plan believes it.
out=$("$ntx" doctor --dir "$dir" --seconds 1 --json) || fail "doctor"
for key in '"ntx_profile": 1' '"source": "measured"' '"gb_s_1"' '"read_us"' '"type": "Q4_K"' '"bytes": 524288' '"streams"' '"findings"'; do has "$out" "$key"; done
[ -s "$XDG_CACHE_HOME/ntx/profile.json" ] || fail "the profile was not stored"
"$NTX_BIN/ntx-mkmodel" "$dir/m.gguf" --type Q4_K_M --layers 4 --embd 256 --ff 768 --heads 4 --kv 2 --ctx 512 >/dev/null || fail "mkmodel"
out=$("$ntx" plan "$dir/m.gguf" --ram 512M --json) || fail "plan with doctor's profile"
has "$out" '"bytes_storage": 0'
grep -q '"predicted_tok_s": 0' <<<"$out" && fail "no prediction: $out"
out=$("$ntx" doctor --dir "$dir/nowhere" --seconds 1 2>&1); [ $? = 111 ] || fail "a directory that is not there: $out"
has "$out" "--dir"
exit 0
