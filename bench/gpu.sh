#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs all measurements for a GPU in one command; appends them to docs/log/gpu.md under the card's name.
#
#   bench/gpu.sh prepare  on a machine with the packages: builds, and puts into .gpu/ all that a bare machine with a
#                card needs. If that machine's libc is too old, or with LIBC=1, the programs run with the carried
#                loader and libc. CARD=8.9: machine code for that compute capability (an RTX 4090's; 12.0: a 5090's);
#                default 9.0. The driver of another card compiles all kernels first, which takes minutes.
#   bench/gpu.sh a | b | c | STAGE...  on that machine (with .gpu/ beside the script), or where ntx is built. The first
#                half hour on a card is the calls a, b and c; without an argument all stages run in this order:
#     a preflight  checks libraries, memory, the link's generation, io_uring; a large shared memory locked for copies,
#                  an empty launch
#       tests      kernels, attention and whole passes on the card against the CPU. After a wrong bit all figures, also
#                  those of later calls, are marked UNVERIFIED
#       kernels    the kernel lab: each product beside the card's copy rate, products of many rows (matrix units on
#                  integers), dense products, attention
#       link       ntx doctor: rates of this machine and its card (copies in its memory, to it, the matrix units);
#                  profiles for the other stages
#       resident8  decode and prefill of an 8B shape, all in the card's memory, Q4_K_M and Q8_0
#     b copies     no weights in VRAM, all copied to it: the real link, beside a plain copy from locked memory; and read
#                  from the drive
#       packed     a few layers of the 8B shape, dense and packed, all in VRAM: all groups of neurons, and a tenth
#       experts    shapes of gpt-oss-20b and Qwen3-30B-A3B, as many layers as fit
#       ncu        one token's kernels of the 8B shape, if ncu is installed
#       sanitizer  the tests under compute-sanitizer (memcheck, racecheck)
#     c resident70 as many layers of a 70B shape as fit
#       tiers      emulates a 24 GB card with PCIe 3 x8: 70B, Q4_K_M with 36 of 80 layers in VRAM and Q6_K with 26; the
#                  rest copied through the link for each token, multiplied by the CPU, and as the cost model says
#       contexts   the 8B shape after 4,096 and 16,384 tokens
#       sessions   eight texts at once
#
# LIMIT=SECONDS (540) for all: a stage that would not end by then is left out, with a message.
# N=tokens (48)
# DIR=directory of models and profiles (default: in /dev/shm, or in /tmp if that has less than 12 GB; models are a few
#     GB, since their layers repeat)
# OUT=directory: output also in $OUT/gpu-results.txt; in $OUT/logs the programs' messages, each run's figures and
#     doctor's profile with the rate of each type's product, which `ntx plan` uses (bench/profiles/,
#     bench/predict/table.py)
# DRY=1: no card: the fake device and tiny shapes, to try the script; nothing is appended. `prepare` then takes the
#     build's kernels, and the fake device too.
set -uo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)
log=$here/docs/log/gpu.md
mkdir -p "${log%/*}" # on a machine that has this script and .gpu/ alone
call_a="preflight tests kernels link resident8"
call_b="copies packed experts ncu sanitizer"
call_c="resident70 tiers contexts sessions"
stages="$call_a $call_b $call_c"
programs="bin/ntx bin/ntx-computed bin/ntx-iod bin/ntx-predictor bin/ntx-mkmodel bin/libntx-cuda.so
    tests/test_cuda_kernels tests/test_cuda_attention tests/test_cuda_routed tests/test_cuda_launches
    tests/test_cuda_pass bench/bench_cuda"
fake=tests/libntx-gpu-fake.so

prepare() {
    local build=${BUILD:-$here/build} out=$here/.gpu card_of_packages=${CARD:-} p
    # tests/run builds kernels to be looked at, not to be fast
    [ "${DRY:-}" ] || cmake -DNTX_CUDA_QUICK=OFF -DNTX_CUDA_CARD="${card_of_packages//./}" "$build" >/dev/null ||
        exit 111
    cmake --build "$build" --target ntx ntx-computed ntx-iod ntx-predictor ntx-mkmodel ntx_cuda_plugin \
        test_cuda_kernels test_cuda_attention test_cuda_routed test_cuda_launches test_cuda_pass bench_cuda \
        ${DRY:+ntx_gpu_fake} || exit 111
    rm -rf "$out"
    mkdir -p "$out/bin" "$out/tests" "$out/bench" "$out/lib"
    for p in $programs; do
        cp "$build/$p" "$out/$p" || exit 111
        strip --strip-unneeded "$out/$p"
        ldd "$out/$p" | awk '$3 ~ /^\// {print $3}'
    done | sort -u | grep -Ev '/(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+)\.so' |
        xargs -I{} cp -L {} "$out/lib/"
    [ ! "${DRY:-}" ] || cp "$build/$fake" "$out/$fake" || exit 111
    git -C "$here" rev-parse --short HEAD >"$out/commit"
    cp "$build/cuda/cards" "$out/cards" || exit 111
    mkdir "$out/libc"
    for p in $programs; do ldd "$out/$p"; done |
        grep -Eo '/[^ ]*/(libc|libm|libdl|libpthread|librt|libgcc_s|libstdc\+\+|ld-linux-x86-64)\.so[^ ]*' | sort -u |
        xargs -I{} cp -L {} "$out/libc/"
    echo "$out: $(du -sh "$out" | cut -f1); carry it to the machine with the card and run bench/gpu.sh there"
}

[ "${1:-}" != prepare ] || { prepare; exit; }
case $*:$# in a:1) set -- $call_a ;; b:1) set -- $call_b ;; c:1) set -- $call_c ;; esac # words
for s in "$@"; do
    [[ " $stages " == *" $s "* ]] ||
        { echo "usage: bench/gpu.sh prepare | a | b | c | [STAGE...]; stages: $stages" >&2; exit 100; }
done
root=${BUILD:-$here/build}
[ ! -d "$here/.gpu/bin" ] || root=$here/.gpu
libraries=$root # where the plug-ins are
plugin=$libraries/bin/libntx-cuda.so
if [ "${DRY:-}" ]; then
    plugin=$root/$fake card="no card: a dry run"
    [ -e "$plugin" ] || plugin=${BUILD:-$here/build}/$fake
    export NTX_CUDA_LIBRARY=$plugin
else
    export CUDA_DEVICE_ORDER=PCI_BUS_ID # as nvidia-smi counts; else the first is the fastest
    card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
    [ "$card" ] || { echo "skipped: no NVIDIA driver or no card here"; exit 77; }
fi
for p in $programs; do
    [ -e "$root/$p" ] || { echo "$root/$p is missing: bench/gpu.sh prepare makes it" >&2; exit 111; }
done
# Containers have often 64 MB of /dev/shm.
shm=/dev/shm
[ "$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 {print $4}')" -gt 12000000 ] 2>/dev/null || shm=${TMPDIR:-/tmp}
dir=${DIR:-$(mktemp -d "$shm/ntx-gpu-XXXXXX")} n=${N:-48} out=$here/.gpu-results.txt params=0
[ "${DIR:-}" ] || trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir"
# Programs name the loader that they start with: copies of them name the carried one. What starts them sets the
# libraries for them alone: the machine's own tools keep its libc.
carried() {
    local loader=/lib64/ld-linux-x86-64.so.2 short p at
    short=$(mktemp -u /tmp/ntx-XXXXXX) # no longer than the name that it replaces
    ln -s "$root/libc/ld-linux-x86-64.so.2" "$short" || return 1
    mkdir -p "$dir/run/bin" "$dir/run/tests" "$dir/run/bench" "$dir/real/bin" "$dir/real/tests" "$dir/real/bench"
    for p in $programs; do
        cp "$root/$p" "$dir/real/$p" || return 1
        at=$(grep -abo -m 1 "$loader" "$dir/real/$p" | head -1 | cut -d: -f1)
        [ -z "$at" ] || { printf '%s\0' "$short" | dd of="$dir/real/$p" bs=1 seek="$at" conv=notrunc 2>/dev/null; } ||
            return 1
        printf '#!/bin/sh\nLD_LIBRARY_PATH=%s:%s${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} exec "%s" "$@"\n' "$root/libc" \
            "$root/lib" "$dir/real/$p" >"$dir/run/$p"
        chmod +x "$dir/run/$p"
    done
    link=$short root=$dir/run
    trap 'rm -f "$link"; [ "${DIR:-}" ] || rm -rf "$dir"' EXIT
}
if [ -d "$root/lib" ]; then
    if [ "${LIBC:-}" ] || ! LD_LIBRARY_PATH=$root/lib "$root/bin/ntx" --version >/dev/null 2>&1; then
        carried || { echo "the carried loader and libc cannot be used" >&2; exit 111; }
        echo "by the carried loader and libc"
    else
        export LD_LIBRARY_PATH=$root/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
fi
commit=$(cat "$libraries/commit" 2>/dev/null || git -C "$here" rev-parse --short HEAD)
logs=${OUT:+$OUT/logs} logs=${logs:-$dir/logs} mark=""
mkdir -p "$logs"
: >"$out"
say() { echo "$*" | tee -a "$out" ${OUT:+"$OUT/gpu-results.txt"}; } # at once: a run may be cut short
left() { echo $((${LIMIT:-540} - SECONDS)); }
# within SECONDS COMMAND...: at most so long, and no longer than there is time in all
within() {
    local t=$1 l; shift
    l=$(left)
    [ "$l" -gt 5 ] || { echo "left out: no time"; return 124; }
    timeout "$((t < l ? t : l))" "$@"
}

# cuBLAS is opened by name: where the loader does not find it, look where toolkits and Python packages put it.
if ! ldconfig -p 2>/dev/null | grep -q 'libcublas\.so\.13'; then
    blas=$(find /usr/local/cuda*/ /usr/lib /usr/local/lib /opt "$HOME/.local/lib" -name 'libcublas.so.13' -print \
        -quit 2>/dev/null)
    [ -z "$blas" ] || export LD_LIBRARY_PATH="${blas%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
fi

# ---- models: shapes, whose layers are the same bytes
if [ "${DRY:-}" ]; then
    shape_8b="2 256 512 4 2" shape_70b="4 256 512 4 1" prompt=8 vocab=600 n=3 ctx=64 runs=1 contexts="20 40"
else
    shape_8b="32 4096 14336 32 8" shape_70b="80 8192 28672 64 8" prompt=512 vocab=32000 ctx=1024 runs=3 \
        contexts="4096 16384"
fi
model() { # SHAPE TYPE LAYERS: makes it; $file, and $params that a prompt's row is multiplied with
    local -n s=shape_$1
    local all embd ff heads kv
    read -r all embd ff heads kv <<<"$s"
    file=$dir/$1-$2-$3.gguf params=$(($3 * (2 * embd * embd + 2 * embd * (embd / heads * kv) + 3 * embd * ff)))
    [ -e "$file" ] ||
        within 120 "$root/bin/ntx-mkmodel" --repeat-layers --layers "$3" --embd "$embd" --ff "$ff" --heads "$heads" \
        --kv "$kv" --ctx 32768 --vocab-size $vocab \
        --type "$2" "$file" >"$dir/log" 2>&1 || { say "$1 $2: no model: $(tail -1 "$dir/log")"; return 1; }
}
layers_of() { local -n s=shape_$1; echo "${s%% *}"; }

n_runs=0
# bench NAME FILE [options]: one line of figures; the last run's JSON in $dir/last.json
bench() {
    local name=$1 file=$2; shift 2
    within 150 "$root/bin/ntx" bench "$file" -p "$prompt" -n "$n" -r "$runs" --backend cuda --ctx $ctx \
        --quiet --json "$@" >"$dir/last.json" 2>"$dir/err" ||
        { say "$name: NOT MEASURED, exit $?: $(tail -1 "$dir/err")"; return 1; } # 124: no time
    cp "$dir/last.json" "$logs/run-$((++n_runs))-${name//[!A-Za-z0-9.]/-}.json"
    say "$mark$name: $(figures)"
}
# The last run: what was moved, beside what the card's memory, its matrix units and the link can.
figures() {
    python3 - "$dir/last.json" "$dir/profile/ntx/profile.json" "$params" <<'PY'
import json, os, sys
r, params = json.load(open(sys.argv[1])), int(sys.argv[3])
gpu = json.load(open(sys.argv[2])).get("gpu", {}) if os.path.exists(sys.argv[2]) else {}
vram, ram, drive = (r["bytes_" + tier] / 1e9 for tier in ("device", "host", "storage"))
tok, prefill = r["decode_tok_s"], r["prefill_tok_s"]
out = ["decode %.3g tok/s (%.3g to %.3g), prefill %.4g tok/s"
       % (tok, r["decode_tok_s_min"], r["decode_tok_s_max"], prefill),
       "GB in VRAM %.2f, in RAM %.2f, on the drive %.2f" % (vram, ram, drive)]
if gpu.get("gb_s") and vram > 0.9 * (vram + ram + drive):
    out.append("decode reads VRAM at %.0f GB/s, %.1f %% of a copy's" % (vram * tok, vram * tok / gpu["gb_s"] * 100))
if gpu.get("gflops"):
    out.append("prefill at %.1f TFLOP/s, %.1f %% of the matrix units'"
               % (2e-12 * prefill * params, 2e-7 * prefill * params / gpu["gflops"]))
if ram + drive > 0.1:
    out.append("what is not in VRAM moves at %.2f GB/s; a plain copy to the card %.2f"
               % ((ram + drive) * tok, gpu.get("h2d_gb_s", 0)))
out.append("predicted %.3g tok/s (%s)" % (r["predicted_tok_s"], r["limit"] or "no profile"))
print("; ".join(out))
PY
}

# ---- profiles: as measured; one with a CPU so slow, and one with a link so slow, that the cost model copies all, or
# nothing
use_profile() { export XDG_CACHE_HOME=$dir/$1; }
make_profiles() {
    use_profile profile
    within 90 "$root/bin/ntx" doctor --dir "$dir" ${DRY:+--seconds 2} >"$logs/doctor" 2>&1 ||
        { say "doctor: exit $?: $(tail -1 "$logs/doctor")"; return 1; }
    cp "$dir/profile/ntx/profile.json" "$logs/"
    python3 - "$dir" <<'PY'
import json, os, sys
d = sys.argv[1]
p = json.load(open(d + "/profile/ntx/profile.json"))
g = p.get("gpu", {})
print("card: copy in its memory %.0f GB/s (read and written), copy to it from locked memory %.2f GB/s, "
      "matrix units %.0f TFLOP/s (F16, F32 sums)" % (
    g.get("gb_s", 0), g.get("h2d_gb_s", 0), g.get("gflops", 0) / 1e3))
print("card: products of one row, GB/s of weights: " + ", ".join("%s %.0f" % t for t in g.get("rates", {}).items()))
cpu = p["cpu"]
print("CPU: %s, %d threads, kernel %s, memory %.1f GB/s"
      % (cpu.get("model"), cpu["threads"], cpu["kernel"], p["ram"]["gb_s"]))
def other(name, change):
    q = json.loads(json.dumps(p))
    change(q)
    os.makedirs(d + "/" + name + "/ntx", exist_ok=True)
    json.dump(q, open(d + "/" + name + "/ntx/profile.json", "w"))
def slow_cpu(q): q["kernels"] = [{"type": "*", "rows": 1, "gb_s": 0.01}]
def slow_link(q): q.setdefault("gpu", {})["h2d_gb_s"] = 0.001
other("copy", slow_cpu)
other("place", slow_link)
PY
}
profiles() {
    [ -e "$dir/place/ntx/profile.json" ] || make_profiles >>"$out" 2>&1 ||
        { say "no profile: the rule of thumb decides what is copied"; return 0; }; use_profile profile
}

# ---- stages

# Code for a card runs on later ones of its generation.
has_machine_code() {
    local c cap cards
    cap=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1) \
        cards=$(cat "$libraries/cards" "$libraries/cuda/cards" 2>/dev/null | head -1) cap=${cap//./}
    for c in $cards; do [ $((c / 10)) != $((cap / 10)) ] || [ "$c" -gt "$cap" ] || return 0; done
    say "THE PLUG-IN HAS NO MACHINE CODE for this card's compute capability, ${cap%?}.${cap: -1}" \
        "(it has: ${cards:-?}):" \
        "the driver compiles all kernels first, for minutes, and figures from that time mean little." \
        "CARD=${cap%?}.${cap: -1} bench/gpu.sh prepare makes it"
}

stage_preflight() {
    local p
    command -v ldd >/dev/null || say "ldd is not here: no look at libraries"
    for p in $programs; do
        ldd "$root/$p" 2>/dev/null | grep -E 'not found' | sed "s|^|$p: |" | tee -a "$out"
    done
    local available shm uring=allowed
    available=$(awk '/MemAvailable/ {printf "%.0f", $2 / 1e6}' /proc/meminfo)
    shm=$(df -B1G --output=avail /dev/shm | tail -1 | tr -d ' ')
    [ "$(cat /proc/sys/kernel/io_uring_disabled 2>/dev/null || echo 0)" = 0 ] || uring="not allowed to all"
    say "memory $available GB available, /dev/shm $shm GB, $(nproc) processors, io_uring is $uring"
    [ "${DRY:-}" ] || has_machine_code
    [ "${DRY:-}" ] ||
        say \
        "link: $(nvidia-smi --query-gpu=pcie.link.gen.max,pcie.link.gen.current,pcie.link.width.current \
        --format=csv,noheader | head -1) (generation at most, now, lanes)"
    # shellcheck disable=SC2086
    within 30 "$root/bench/bench_cuda" "$plugin" preflight ${DRY:+tiny} >"$logs/preflight" 2>&1 ||
        say "bench_cuda preflight: exit $?"
    grep -v '^what,' "$logs/preflight" | while IFS= read -r p; do say "$p"; done
}

# After a wrong value all figures are marked, and the measurements go on.
stage_tests() {
    local t rc=0
    for t in kernels attention routed launches "pass${DRY:+ best}"; do
        # shellcheck disable=SC2086
        set -- $t
        within 150 "$root/tests/test_cuda_$1" "$plugin" ${2:-} >"$logs/test-$1" 2>&1 &&
            { say "test_cuda_$t: $(tail -1 "$logs/test-$1")"; continue; }
        say "test_cuda_$t FAILED, exit $?: $(tail -3 "$logs/test-$1")"
        mark="UNVERIFIED, " rc=1
    done
    [ $rc = 0 ] && echo "$card $commit" >"$here/.gpu-tested" || rm -f "$here/.gpu-tested"
    return $rc
}

stage_link() { profiles; grep -E '^(card|CPU):' "$out"; }

# Bytes of the card's memory that are free, in MiB; the fake one's.
vram_mib() { [ "${DRY:-}" ] && echo 900 || nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits | head -1; }

# As many of the shape's layers as fit, with 4 GiB for KV and work.
fitting() { # SHAPE BYTES-OF-ALL
    local all free; all=$(layers_of "$1") free=$(($(vram_mib) * 1048576 - 4294967296))
    [ ! "${DRY:-}" ] || free=$2
    echo $((free / ($2 / all) < all ? free / ($2 / all) : all))
}

resident() { # SHAPE
    local shape=$1 type layers bytes
    profiles
    for type in Q4_K_M Q8_0; do
        case $shape-$type in 8b-*) bytes=9000000000 ;; *-Q8_0) bytes=74000000000 ;; *) bytes=42500000000 ;; esac
        layers=$(fitting "$shape" $bytes)
        model "$shape" $type "$layers" || continue
        bench "resident, $shape shape, $type, $layers of $(layers_of "$shape") layers" "$file"
        [ "$type" != Q4_K_M ] || bench "the same without graphs" "$file" --gpu-graphs off
        rm -f "$file"
    done
}
stage_resident8() { resident 8b; }
stage_resident70() { resident 70b; }

# NAME LAYERS GB [mkmodel options]: a model with experts, of which as many layers as fit.
expert_shape() {
    local name=$1 all=$2 gb=$3 layers free; shift 3
    free=$(($(vram_mib) / 1024 - 4)) layers=$((free * all / gb < all ? free * all / gb : all))
    [ ! "${DRY:-}" ] || layers=2
    [ $layers -gt 0 ] || { say "$name: no room"; return 1; }
    file=$dir/experts.gguf params=0
    within 150 "$root/bin/ntx-mkmodel" --repeat-layers --layers $layers --ctx 4096 \
        --vocab-size $vocab "$@" "$file" >"$logs/mkmodel" 2>&1 ||
        { say "$name: no model: $(tail -1 "$logs/mkmodel")"; return 1; }
    bench "experts, $name, $layers of $all layers" "$file"
    bench "the same without graphs" "$file" --gpu-graphs off
    rm -f "$file"
}

stage_experts() {
    profiles
    if [ "${DRY:-}" ]; then
        expert_shape gpt-oss 2 1 --arch gpt-oss --embd 256 --heads 4 --kv 2 --experts 8 --experts-used 4 \
            --expert-ff 256 --window 6 --type MXFP4
        expert_shape qwen3moe 2 1 --arch qwen3moe --embd 256 --heads 4 --kv 2 --experts 8 --experts-used 4 \
            --expert-ff 256 --type Q4_K_M
        return
    fi
    expert_shape gpt-oss-20b 24 13 --arch gpt-oss --embd 2880 --heads 64 --kv 8 --head-dim 64 --experts 32 \
        --experts-used 4 --expert-ff 2880 --window 128 --type MXFP4
    expert_shape Qwen3-30B-A3B 48 19 --arch qwen3moe --embd 2048 --heads 32 --kv 4 --head-dim 128 --experts 128 \
        --experts-used 8 --expert-ff 768 --type Q4_K_M
}

stage_ncu() {
    local tool layers=2
    tool=$(command -v ncu || ls /usr/local/cuda*/bin/ncu 2>/dev/null | head -1)
    [ "$tool" ] || { say "ncu is not here"; return; }
    model 8b Q4_K_M $layers || return
    within 150 "$tool" --target-processes all --launch-skip 200 --launch-count 60 \
        --set basic "$root/bin/ntx" run "$file" x --raw -n 8 --backend cuda --ctx 256 >"$logs/ncu" 2>&1
    say \
        "ncu, 60 kernels of $layers layers of the 8B shape: exit $?, $(grep \
        -c 'Memory Throughput' "$logs/ncu") profiles in the log"
    rm -f "$file"
}

stage_contexts() {
    local long n=16 runs=2 short=$prompt was=$ctx
    profiles
    model 8b Q4_K_M "$(layers_of 8b)" || return
    for long in $contexts; do
        prompt=$long ctx=$((long + n + 16))
        bench "the 8B shape, Q4_K_M, behind $long tokens" "$file"
    done
    prompt=$short ctx=$was
    rm -f "$file"
}

# Eight texts of one service, measured by its own statistics.
stage_sessions() {
    local i up t0 t1 waits=0 done=0 texts=()
    profiles
    model 8b Q4_K_M "$(layers_of 8b)" || return
    export NTX_RUNTIME=$dir/rt
    timeout 200 "$root/bin/ntx" up "$file" --backend cuda --ctx $ctx --sessions 8 >"$logs/sessions" 2>&1 &
    up=$!
    until "$root/bin/ntx" status --json 2>/dev/null | grep -Eq '"state": *"ready"' || [ $waits -ge 120 ] ||
        [ "$(left)" -lt 30 ]; do sleep 1; waits=$((waits + 1)); done
    t0=$(date +%s%N)
    for i in 1 2 3 4 5 6 7 8; do
        within 120 "$root/bin/ntx" generate "text number $i" --raw -n "$n" \
            --ignore-eos --quiet >"$logs/session-$i" 2>&1 &
        texts+=($!)
    done
    for i in "${texts[@]}"; do
        wait "$i" && done=$((done + 1))
    done
    t1=$(date +%s%N)
    "$root/bin/ntx" stop >/dev/null 2>&1
    wait "$up"
    unset NTX_RUNTIME
    rm -f "$file"
    say \
        "${mark}eight texts at once, $n tokens each: $done answered, $(awk -v n="$((done * n))" \
        -v ns=$((t1 - t0)) 'BEGIN {printf "%.3g", n / ns * 1e9}') tok/s together, prompts included"
}

# The budget that leaves room for so many layers' matrices; a refusal names the bytes of KV and work.
budget() { # FILE LAYERS ALL
    local work size
    work=$("$root/bin/ntx" run "$1" x --raw -n 1 --backend cuda --ctx $ctx --vram 1B 2>&1 |
        sed -n 's/.* take [^(]*(\([0-9]*\) bytes) of GPU memory.*/\1/p')
    size=$("$root/bin/ntx" inspect "$1" --json | sed -n 's/^ *"tensor_bytes": \([0-9]*\),*/\1/p')
    echo $((${work:-1000000000} + size / $3 * $2))
}

stage_tiers() {
    local type layers all vram how link=6.5G n=4 runs=2 # seconds a token
    local -A told=([copy]="the rest copied" [place]="the rest multiplied in place" \
        [profile]="the rest as the cost model says")
    profiles
    all=$(layers_of 70b)
    for type in Q4_K_M:36 Q6_K:26; do
        layers=$((${type#*:} * all / 80)) type=${type%:*}
        model 70b $type "$all" || continue
        vram=$(budget "$file" $layers "$all")
        for how in copy place profile; do
            use_profile $how
            bench "tiers, 70B $type, $layers of $all layers in VRAM, link $link, ${told[$how]}" "$file" --vram "$vram" \
                --link h2d=$link
        done
        rm -f "$file"
    done
    use_profile profile
}

stage_packed() {
    local how layers=$((8 * $(layers_of 8b) / 32))
    profiles
    [ $layers -gt 0 ] || layers=1
    model 8b Q4_K_M $layers || return
    bench "8B shape, Q4_K_M, $layers layers, dense" "$file"
    within 150 "$root/bin/ntx" pack "$file" "$dir/packed.gguf" --group 16K --down-type Q8_0 --force --quiet \
        >"$dir/log" 2>&1 ||
        { say "not packed: $(tail -1 "$dir/log")"; return 1; }
    for how in off topk=0.1 predicted=0.1,gate; do
        bench "the same packed, --ffn-sparse $how" "$dir/packed.gguf" --ffn-sparse $how
    done
    rm -f "$file" "$dir/packed.gguf"
}

stage_copies() {
    local vram disk=$here/.gpu-disk n=16
    profiles
    model 8b Q8_0 "$(layers_of 8b)" || return
    vram=$(budget "$file" 0 1)
    use_profile copy
    bench "copies, 8B Q8_0, all in RAM and copied for each token" "$file" --vram "$vram"
    mkdir -p "$disk"
    cp "$file" "$disk/m.gguf" && sync "$disk/m.gguf" &&
        bench "copies, 8B Q8_0, read from the drive and copied" "$disk/m.gguf" --vram "$vram" --ram 3G
    rm -rf "$disk" "$file"
    use_profile profile
}

stage_kernels() {
    # shellcheck disable=SC2086
    within 120 "$root/bench/bench_cuda" "$plugin" ${DRY:+tiny} 2>&1 | tee -a "$out" ${OUT:+"$OUT/gpu-results.txt"} ||
        say "the kernel lab was cut short, exit $?"
}

stage_sanitizer() {
    local t tool cs
    cs=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -1)
    [ "$cs" ] || { say "sanitizer: compute-sanitizer is not here"; return; }
    for tool in memcheck racecheck; do
        for t in attention kernels routed "pass best" "pass skip" "pass packed-prompts" "pass crowds"; do
            # shellcheck disable=SC2086
            set -- $t
            within 150 "$cs" --tool $tool --error-exitcode 9 "$root/tests/test_cuda_$1" "$plugin" \
                ${2:-} >"$logs/$tool-${t// /-}" 2>&1
            say \
                "compute-sanitizer $tool, $t: exit $?: $(grep -E 'ERROR SUMMARY|RACECHECK SUMMARY' \
                "$logs/$tool-${t// /-}" | tail -1)"
        done
    done
}

[ $# -gt 0 ] || set -- $stages
bad=0
[[ " $* " == *" tests "* ]] || [ "$(cat "$here/.gpu-tested" 2>/dev/null)" = "$card $commit" ] ||
    { mark="UNVERIFIED, "; say "no call before this one has seen all tests pass with this card and commit"; }
for s in "$@"; do
    [ "$(left)" -gt 10 ] || { say "stage $s: left out, ${LIMIT:-540} s are over"; continue; }
    say "--- $s, $SECONDS s after the beginning"
    "stage_$s" || bad=1
done
[ ! "${DRY:-}" ] || exit $bad
{
    echo
    echo "## $(date -u '+%-d %b %Y'): $card, commit $commit"
    echo
    echo "\`bench/gpu.sh $*\`, $(nproc) CPUs, driver $(nvidia-smi --query-gpu=driver_version --format=csv,noheader |
        head -1)."
    echo
    sed 's/^/    /' "$out"
} >>"$log"
echo "appended to docs/log/gpu.md"
exit $bad
