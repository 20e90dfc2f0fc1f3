#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# bench/gpu.sh as it runs on a bare machine: a folder with the script and the files that `prepare` makes, without a
# build. It uses the fake device and the real daemons; the kernel tests and the kernel lab are replaced by scripts that
# succeed or fail. A wrong bit marks the figures of this and of later calls. The profile and each run's figures are
# stored, and a message says when no time is left.
. "$(dirname "$0")/../../lib/test.sh"
fake=$1
[ -e "$fake" ] || skip "no fake GPU in this build"
here=$tmp/elsewhere out=$tmp/out
mkdir -p "$here/bench" "$here/.gpu/"{bin,tests,bench,lib}
cp "$NTX_SOURCE/bench/gpu.sh" "$here/bench/"
for p in ntx ntx-computed ntx-iod ntx-predictor ntx-mkmodel; do ln -s "$NTX_BIN/$p" "$here/.gpu/bin/"; done
ln -s "$fake" "$here/.gpu/tests/"
: >"$here/.gpu/bin/libntx-cuda.so"
echo abc123 >"$here/.gpu/commit"
for p in tests/test_cuda_{kernels,attention,routed,launches,pass} bench/bench_cuda; do
    printf \
        '#!/bin/sh\n[ "$WRONG" != "%s" ] ||\n{ echo "output 3 is 1.5, expected 1.25"; exit 1; }\n'\
'echo "%s: all agree"\n' \
        "${p#*/}" "${p#*/}" >"$here/.gpu/$p"
    chmod +x "$here/.gpu/$p"
done
call() {
    rm -rf "$out"
    mkdir "$out"
    WRONG=${wrong:-} DRY=1 DIR=$tmp/d OUT=$out timeout 250 bash "$here/bench/gpu.sh" \
        "$@" >"$tmp/said" 2>"$tmp/err"
}
has() { grep -q -- "$1" "$out/gpu-results.txt" || fail "no '$1' in: $(cat "$out/gpu-results.txt" "$tmp/err")"; }

bash "$here/bench/gpu.sh" tests nothing >/dev/null 2>&1; [ $? = 100 ] || fail "a stage that is none"
DRY=1 BUILD=$tmp/none bash "$NTX_SOURCE/bench/gpu.sh" preflight >/dev/null 2>"$tmp/err"; rc=$?
[ -e "$NTX_SOURCE/.gpu" ] || [ $rc = 111 ] || fail "programs that are missing: exit $rc, $(cat "$tmp/err")"

wrong=test_cuda_attention call preflight tests kernels link resident8; rc=$?
[ $rc = 1 ] || fail "a wrong bit: exit $rc, $(cat "$tmp/said" "$tmp/err")"
has '^test_cuda_kernels: .*all agree'
has '^test_cuda_attention FAILED, exit 1: output 3 is 1.5'
has '^test_cuda_pass best: .*all agree'
has '^UNVERIFIED, resident, 8b shape, Q4_K_M, 2 of 2 layers: decode [0-9]'
has '^UNVERIFIED, the same without graphs: decode [0-9]'
has '^UNVERIFIED, resident, 8b shape, Q8_0, 2 of 2 layers: decode [0-9].*; predicted [0-9]'
grep -q '^memory ' "$out/gpu-results.txt" && grep -q '^card: products of one row.* Q4_K [0-9]' "$tmp/said" ||
    fail "preflight, rates: $(cat "$tmp/said")"
[ ! -e "$here/.gpu-tested" ] || fail "tests passed that did not"
python3 - "$out/logs" <<'PY' || fail "what comes back: $(ls "$out/logs")"
import json, os, sys
d = sys.argv[1]
assert json.load(open(d + "/profile.json"))["gpu"]["rates"]["Q8_0"] > 0
runs = [f for f in os.listdir(d) if f.startswith("run-")]
assert len(runs) == 3 and all(json.load(open(d + "/" + f))["bytes_device"] > 0 for f in runs), runs
assert {"preflight", "test-attention", "test-pass", "doctor"} <= set(os.listdir(d))
PY

call packed || fail "packed: $(cat "$tmp/said" "$tmp/err")"
has '^no call before this one has seen all tests pass'
has '^UNVERIFIED, the same packed, --ffn-sparse topk=0.1: decode [0-9]'
call tests || fail "tests: $(cat "$tmp/said" "$tmp/err")"
call copies || fail "copies: $(cat "$tmp/said" "$tmp/err")"
has '^copies, 8B Q8_0, read from the drive and copied: decode [0-9]'
grep -q UNVERIFIED "$out/gpu-results.txt" && fail "marked after all tests passed: $(cat "$out/gpu-results.txt")"
LIMIT=9 call tests resident8 || fail "no time: $(cat "$tmp/said" "$tmp/err")"
has '^stage tests: left out, 9 s are over'
has '^stage resident8: left out, 9 s are over'
echo "bench/gpu.sh runs from what is carried, marks what was not verified, and goes on"
