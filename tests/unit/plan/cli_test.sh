#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# `ntx plan` and `ntx doctor` as people meet them.
set -u
ntx=$NTX_BIN/ntx
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
export XDG_CACHE_HOME=$dir/cache
fail() { echo "failed: $*" >&2; exit 1; }
has() { grep -qF -- "$2" <<<"$1" || fail "no '$2' in: $1"; }

# The published table: all 24 rows as printed, and the network below.
out=$("$ntx" plan llama-2-7b@f16 --profile "$NTX_SOURCE/bench/profiles/a6000.json" --ctx 2048 --compat) ||
    fail "plan --compat"
rows=$(grep -cE '^(q|k|v|o|gate|up|down)_proj |^(qk|sv)_matmul |^softmax |^norm |^add ' <<<"$out")
[ "$rows" = 24 ] || fail "24 rows: $out"
has "$out" "network: 2.87512e+13 OPs, 6.58611e+10 bytes, 226.88 ms; layers' weights 12.952 GB, KV 1.0737 GB"
has "$out" "network: 1.41697e+10 OPs, 1.43132e+10 bytes, 18.637 ms; layers' weights 12.952 GB, KV 1.0737 GB"
out=$("$ntx" plan llama-2-7b@f16 --profile "$NTX_SOURCE/bench/profiles/a6000.json" --ctx 2048 --roofline) || fail "plan"
[ "$(grep -c '^lm_head' <<<"$out")" = 2 ] || fail "the corrected table has an output matrix"

# Without a profile it measures for a moment, says so, and stores that; the next plan uses it. A profile of a busy
# machine is reported as such.
out=$(cd "$dir" && "$ntx" plan llama-8b@q8_0 --ram 4G 2>&1) || fail "without a profile: $out"
has "$out" "No hardware profile was there, so this machine was measured for a moment, and that is kept: \`ntx doctor\`"
has "$out" "(brief)"
grep -q "tokens* a second\|a token every" <<<"$out" || fail "no prediction without a profile: $out"
has "$(cat "$dir/cache/ntx/profile.json")" '"source": "brief"'
sanitized() { nm -D "$ntx" | grep -q '__asan_init\|__tsan_init'; }
if ! sanitized; then # a sanitizer's library would have to be preloaded first
    # A brief profile of a busy machine stays while the machine is busy, and is measured again when it is quiet, once.
    with_load() { env LD_PRELOAD="$NTX_BUILD/tests/libother_load.so" NTX_LOAD="$1" "$ntx" plan llama-8b@q8_0 --ram 4G; }
    only="This machine was measured for a moment only"
    sed -i '/"load":/d; s/"source": "brief"/"source": "brief", "load": 1.25/' "$dir/cache/ntx/profile.json"
    cp "$dir/cache/ntx/profile.json" "$dir/busy.json"
    out=$(with_load 100) || fail "a busy machine's profile: $out"
    has "$out" "$only"
    has "$out" "The hardware profile is of a busy machine (a load of 1.2 per processor)"
    cmp "$dir/busy.json" "$dir/cache/ntx/profile.json" || fail "it was measured again while the machine was busy"
    out=$(cd "$dir" && with_load 0.1) || fail "a quiet machine: $out"
    has "$out" "The hardware profile was of a busy moment, so this machine was measured for a moment, and that is kept"
    grep -q "Note:.*busy machine" <<<"$out" && fail "the busy machine's profile is still used: $out"
    grep -q '"load": 1.25' "$dir/cache/ntx/profile.json" && fail "the new profile was not kept"
    cp "$dir/cache/ntx/profile.json" "$dir/quiet.json"
    has "$(with_load 0.1)" "$only"
    cmp "$dir/quiet.json" "$dir/cache/ntx/profile.json" || fail "a quiet machine's profile was measured again"
    # Where nothing can be measured, the old figures are better than an estimate.
    cp "$dir/busy.json" "$dir/cache/ntx/profile.json"
    has "$(cd /proc && with_load 0.1)" "$only"
    cmp "$dir/busy.json" "$dir/cache/ntx/profile.json" || fail "the profile was replaced without a measurement"
    cp "$dir/quiet.json" "$dir/cache/ntx/profile.json"
fi
sed -i '/"load":/d; s/"source": "brief"/"source": "measured", "load": 1.25/' "$dir/cache/ntx/profile.json"
has "$("$ntx" plan llama-8b@q8_0 --ram 4G)" "The hardware profile is of a busy machine (a load of 1.2 per processor)"
sed -i 's/"load": 1.25/"load": 0.25/' "$dir/cache/ntx/profile.json"
grep -q "Note:.*\(busy\|moment\)" <<<"$("$ntx" plan llama-8b@q8_0 --ram 4G)" && fail "a note on a profile that is quiet"
rm -r "$dir/cache"
# Where nothing can be measured, it is an estimate.
out=$(cd /proc && "$ntx" plan llama-8b@q8_0 --ram 4G 2>&1) || fail "where nothing can be measured: $out"
has "$out" "the figures are those of a common desktop"
has "$out" "(estimated)"
[ ! -e "$dir/cache/ntx/profile.json" ] || fail "an estimate was kept"

# Bad profile, bad names: one line, the right code.
has "$("$ntx" plan lama-8b@q8_0 2>&1)" "did you mean 'llama-8b'" # before it asks for a profile
out=$("$ntx" plan llama-8b@q9 --profile "$NTX_SOURCE/bench/profiles/desktop-ddr4.json" 2>&1)
[ $? = 111 ] || fail "unknown type: $out"
has "$out" "there is no type 'q9'" && has "$out" 'ntx plan --list'
"$ntx" plan >/dev/null 2>&1; [ $? = 100 ] || fail "no model is wrong usage"

# The answer first, in words; the table only when asked for.
out=$("$ntx" plan llama-70b@q4_k_m --profile "$NTX_SOURCE/bench/profiles/desktop-ddr4.json") || fail "plan in words"
first="Fits in 27.2 GiB of memory (--ram 27852M): 27.1 of its 41.9 GB stay there;"
first="$first the other 14.8 are read from the drive for every token."
[ "$(head -n 1 <<<"$out")" = "$first" ] || fail "first line: $out"
second="Writing: a token every 4.5 seconds; an answer of 300 words takes about 30 minutes."
[ "$(sed -n 2p <<<"$out")" = "$second" ] || fail "second line: $out"
has "$("$ntx" plan "$NTX_SOURCE/models/demo-chat.gguf" --machine ram=64G,drive=7G,cores=16)" \
    " tokens a second; an answer of 300 words takes less than a second."
has "$(sed -n 3p <<<"$out")" "Reading: 4.4 tokens a second; a prompt of 500 words takes about 3 minutes."
has "$(sed -n 4p <<<"$out")" "Limit:   the drive"
has "$(sed -n 5p <<<"$out")" "To buy: "
grep -q '^q_proj' <<<"$out" && fail "a table that nobody asked for: $out"
has "$out" "times as fast with 48 GiB of memory instead of 32.0 GiB"

# Names: listed, and the nearest one when one is wrong.
out=$("$ntx" plan --list) || fail "--list"
for name in llama-70b gpt-oss-20b q4_k_m mxfp4 3090 h100; do has "$out" " $name"; done
for pair in lama-70b@q4_k_m:llama-70b llama-70b@q4km:q4_k_m lama-70b:llama-70b; do
    out=$("$ntx" plan "${pair%:*}" --machine ram=64G 2>&1); [ $? = 111 ] || fail "$pair: $out"
    has "$out" "(did you mean '${pair#*:}'?)"
done
has "$("$ntx" plan llama-70b --machine ram=64G 2>&1)" "llama-70b@q4_k_m"
has "$("$ntx" plan nowhere.gguf --machine ram=64G 2>&1)" "No such file"
out=$("$ntx" plan unheard-of --machine ram=64G 2>&1); [ $? = 111 ] || fail "unheard-of: $out"
has "$out" "No such file" && has "$out" 'ntx plan --list'

# Machines by words; more budget than machine is told.
out=$("$ntx" plan llama-70b@q4_k_m --machine gpu=3090,ram=64G,drive=7G,pcie=4x16) || fail "--machine"
has "$out" "lie on the GPU"
grep -q '^Note:' <<<"$out" && fail "a note that is not due: $out"
out=$("$ntx" plan llama-70b@q4_k_m --machine gpu=3090,ram=16G --ram 32G) || fail "--machine --ram"
has "$out" "Note:    --ram 32G is more memory than that machine has, 16G"
out=$("$ntx" plan llama-70b@q4_k_m --machine gpu=3091 2>&1); [ $? = 111 ] || fail "3091: $out"
has "$out" "3090"
"$ntx" plan llama-8b@q8_0 --machine ram=8G --profile x 2>/dev/null; [ $? = 111 ] || fail "two machines"

# Every kept profile predicts every model; a slower emulated link is a slower prediction.
for p in "$NTX_SOURCE"/bench/profiles/*.json; do
    for m in llama-70b@q4_k_m llama-70b@q6_k mixtral-8x7b@q4_k_m qwen3-235b-a22b@q4_k_m gpt-oss-120b@mxfp4; do
        "$ntx" plan $m --profile "$p" --json >"$dir/out" || fail "$m with $p"
    done
done
speed() {
    "$ntx" plan llama-70b@q4_k_m --profile "$NTX_SOURCE/bench/profiles/$1.json" --json "${@:2}" |
        sed -n 's/^ "predicted_tok_s": \([0-9.]*\),*$/\1/p'
}
less() {
    awk -v a="$1" -v b="$2" -v f="$3" 'BEGIN {exit !(a > 0 && a < b * f)}' || fail "$1 is not less than $3 times $2"
}
less "$(speed desktop-ddr4 --link nvme=1.65G)" "$(speed desktop-ddr4)" 0.51
less "$(speed rtx3090-pcie3x8 --backend cuda --link h2d=3.25G)" "$(speed rtx3090-pcie3x8 --backend cuda)" 0.51
# A GPU with the host's memory reads 42 GB of weights in place, at 218 GB/s: neither at the processor's rate nor over a
# link.
less "$(speed gb10-128g)" 5.3 1
less 4.5 "$(speed gb10-128g)" 1
less "$(speed gb10-128g --backend cpu)" "$(speed gb10-128g)" 0.6
for p in gb10-128g orin-64g; do
    out=$("$ntx" plan llama-70b@q4_k_m --profile "$NTX_SOURCE/bench/profiles/$p.json") || fail "plan for $p"
    has "$out" " for processor and GPU; " # one budget
    has "$out" "; the GPU multiplies weights where they lie in RAM, and none is copied"
    case $out in *VRAM* | *"copied to the GPU"*) fail "$p has no memory of its own: $out" ;; esac
    has "$out" "(estimated)"
done

# KV in eighths is counted as such; what is not predicted is refused.
has "$("$ntx" plan llama-70b@q4_k_m --profile "$NTX_SOURCE/bench/profiles/desktop-ddr4.json" --kv-type q8_0)" \
    "KV 0.174 MB per token"
has "$("$ntx" plan llama-70b@q4_k_m --profile "$NTX_SOURCE/bench/profiles/desktop-ddr4.json")" "KV 0.328 MB per token"
out=$("$ntx" plan llama-8b@q8_0 --profile "$NTX_SOURCE/bench/profiles/desktop-ddr4.json" --skip predictive 2>&1)
[ $? = 111 ] || fail "--skip is not predicted: $out"

# Doctor measures (in a hurry here), stores, and plan believes it.
out=$("$ntx" doctor --dir "$dir" --seconds 1 --json) || fail "doctor"
for key in '"ntx_profile": 1' '"source": "measured"' '"gb_s_1"' '"read_us"' '"type": "Q4_K"' '"bytes": 524288' \
    '"streams"' '"findings"' '"attend"' '"value_ns"'; do
    has "$out" "$key"
done
[ -s "$XDG_CACHE_HOME/ntx/profile.json" ] || fail "the profile was not stored"
"$NTX_BIN/ntx-mkmodel" "$dir/m.gguf" --type Q4_K_M --layers 4 --embd 256 --ff 768 --heads 4 --kv 2 --ctx 512 \
    >/dev/null || fail "mkmodel"
out=$("$ntx" plan "$dir/m.gguf" --ram 512M --json) || fail "plan with doctor's profile"
has "$out" '"bytes_storage": 0'
grep -q '"predicted_tok_s": 0' <<<"$out" && fail "no prediction: $out"
# ntx plan and ntx run agree about a file: the same least budget, to the byte, and the same prediction.
least=$("$ntx" plan "$dir/m.gguf" --json | sed -n 's/^ "smallest": \([0-9]*\),$/\1/p')
[ "$least" -gt 0 ] || fail "no smallest budget"
said=$("$ntx" run "$dir/m.gguf" hello -n 1 --ram 100K 2>&1); [ $? = 111 ] || fail "100K are enough: $said"
has "$said" "($least bytes)"
has "$("$ntx" plan "$dir/m.gguf" --ram 100K 2>&1)" "($least bytes)"
"$ntx" run "$dir/m.gguf" hello -n 1 --ram "$least" >/dev/null 2>&1 || fail "run with $least bytes"
"$ntx" plan "$dir/m.gguf" --ram "$least" >/dev/null || fail "plan with $least bytes"
"$ntx" run "$dir/m.gguf" hello -n 1 --ram $((least - 1)) >/dev/null 2>&1 && fail "run with less than $least bytes"
"$ntx" plan "$dir/m.gguf" --ram $((least - 1)) >/dev/null 2>&1 && fail "plan with less than $least bytes"
tok_s() { sed -n 's/^ *"predicted_tok_s": *\([0-9.]*\),*$/\1/p'; }
for ram in 7M 9M 64M; do
    a=$("$ntx" plan "$dir/m.gguf" --ram $ram --ctx 256 --threads 1 --json | tok_s)
    b=$("$ntx" bench "$dir/m.gguf" -p 8 -n 2 -r 1 --ram $ram --ctx 256 --threads 1 --json | tr ',' '\n' | tok_s)
    awk -v a="$a" -v b="$b" 'BEGIN {exit !(a > 0 && a / b > 0.999 && a / b < 1.001)}' ||
        fail "with $ram plan predicts $a, bench $b"
done

# Drafts: common statistics first (1 + 0.4 (1 + 1/4 + 1/9) by look-up), then those of the model's own loads; only these
# for auto, the default; a file that cannot be opened is reported.
draft() {
    "$ntx" plan "$dir/m.gguf" --ram 7M --ctx 256 --threads 1 --draft lookup --draft-nodes 3 --json | python3 -c '
import json, sys
d = json.load(sys.stdin)["draft"]
print(d["nodes"], "%.3f" % d["tokens_per_pass"], d["learned"])'
}
[ "$(draft)" = "3 1.544 False" ] || fail "drafts before any: $(draft)"
"$ntx" run "$dir/m.gguf" "a b c a b c a b c a b c" --raw --ignore-eos -n 60 --temp 0 --ram 7M --ctx 256 --threads 1 \
    --draft lookup --draft-nodes 3 --quiet --stats "$dir/s" >/dev/null || fail "run with look-up"
seen=$(python3 -c 'import json, sys; print("3 %.3f True" % json.load(open(sys.argv[1]))["accepted_per_pass"])' "$dir/s")
awk -v a="$(draft)" -v b="$seen" 'BEGIN {
    split(a, x, " "); split(b, y, " "); r = x[2] / y[2]
    exit !(x[3] == "True" && y[2] > 1 && r > 0.98 && r < 1.02)}' ||
    fail "drafts after a run: $(draft), and the run had $seen" # whose last pass has no drafts
has "$("$ntx" plan "$dir/m.gguf" --ram 7M --ctx 256 --draft lookup --draft-nodes 3)" "tokens per pass of 3 drafts: "
has "$("$ntx" plan "$dir/m.gguf" --ram 7M --ctx 256)" "at the acceptance rates measured here" # auto
XDG_CACHE_HOME=$dir/new "$ntx" plan "$dir/m.gguf" --ram 7M --ctx 256 | grep -q Drafts: && fail "drafts of no experience"
has "$("$ntx" plan "$dir/m.gguf" --ram 7M --draft "$dir/none.gguf" 2>&1)" "none.gguf"
has "$("$ntx" plan "$dir/m.gguf" --ram 900T)" "than this machine has"
out=$("$ntx" doctor --dir "$dir/nowhere" --seconds 1 2>&1); [ $? = 111 ] || fail "a directory that is not there: $out"
has "$out" "--dir"
exit 0
