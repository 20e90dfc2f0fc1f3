#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The first build of deploy/quickstart stays small: the programs, the kernels that this processor runs, no plug-in, no
# man pages, no tests. `cmake --install` builds the rest before it copies a file, and copies none if that fails.
. "$(dirname "$0")/../../lib/test.sh"
real=$(command -v ninja) || skip "needs ninja, which can tell what a target makes"
quick=${tmp:?}/build

# The ninja of this build directory notes targets of an installation, and does not build them.
cat >"$tmp/ninja" <<END
#!/bin/bash
case " \$* " in *" ntx_installed "*)
    grep '^NTX_THIS_CPU' "$quick/CMakeCache.txt" >"$tmp/asked"
    exit \$(cat "$tmp/code") ;;
esac
exec "$real" "\$@"
END
chmod +x "$tmp/ninja"
cmake -S "$NTX_SOURCE" -B "$quick" -G Ninja -DCMAKE_MAKE_PROGRAM="$tmp/ninja" -DNTX_THIS_CPU=ON -DNTX_TESTS=OFF \
    >"$tmp/log" 2>&1 || fail "cmake: $(tail -n 5 "$tmp/log")"
"$real" -C "$quick" -t commands ntx_first >"$tmp/first" || fail "ninja -t commands"
for program in ntx ntx-top ntx-metrics ntx-gateway ntx-computed ntx-iod ntx-predictor; do
    grep -q -- " -o bin/$program " "$tmp/first" || fail "the first build lacks $program"
done
! grep -E 'man\.sh|ntx-mpi| -o tests/|mkmodel' "$tmp/first" ||
    fail "the first build makes what the first text does not need"
[ -e /dev/nvidiactl ] || ! grep -q nvcc "$tmp/first" || fail "the first build makes the CUDA plug-in without a card"

# Kernels: those that the full program selects on this machine, and none that it cannot run.
set_of() { # FILE: the sets of kernels of a list of commands
    grep -o 'CMakeFiles/ntx_cpu_[a-z0-9]*\.dir/[a-z]' "$1" | sed 's/.*ntx_cpu_//;s/\.dir.*//' | sort -u | xargs
}
model "$tmp/m.gguf" --layers 1
ntx run "$tmp/m.gguf" hi -n 1 --raw --ignore-eos --ctx 64 --stats "$tmp/stats" --quiet >/dev/null || fail "ntx run"
selected=$(stat_of "$tmp/stats" kernel)
case $selected in
generic) want="generic here" ;;
avx2) want="avx2 generic here" ;;
avx512 | amx) want="avx2 avx512 generic here" ;;
neon | i8mm) want="generic here neon" ;;
*) fail "the statistics name the kernels '$selected'" ;;
esac
[ "$(set_of "$tmp/first")" = "$want" ] || fail "kernels of the first build: $(set_of "$tmp/first"), not $want"
objects=$(grep -c -- ' -c /' "$tmp/first")
[ "$objects" -ge 300 ] && [ "$objects" -le 660 ] ||
    fail "the first build compiles $objects files; measure it again (bench/quickstart.py), then change this limit"

# An installation: first the rest, then the files.
echo 7 >"$tmp/code"
! DESTDIR=$tmp/root cmake --install "$quick" >"$tmp/said" 2>&1 || fail "it installed without the rest"
tr -s ' \n' ' ' <"$tmp/said" | grep -q 'Nothing is installed: .* cmake -DNTX_THIS_CPU=OFF .* --target ntx_installed' ||
    fail "it does not say what is missing: $(cat "$tmp/said")"
[ ! -e "$tmp/root" ] || fail "files were installed although the rest is missing"
! DESTDIR=$tmp/root cmake --install "$quick" >"$tmp/said" 2>&1 || fail "it installed without the rest, the second time"
grep -q 'Nothing is installed' "$tmp/said" && [ ! -e "$tmp/root" ] ||
    fail "an installation that is tried again copies what there is: $(cat "$tmp/said")"
grep -qx 'NTX_THIS_CPU:BOOL=OFF' "$tmp/asked" ||
    fail "the rest was built with this processor's kernels: $(cat "$tmp/asked")"
"$real" -C "$quick" -t commands ntx_installed >"$tmp/all" || fail "ninja -t commands"
"$real" -C "$NTX_BUILD" -t commands ntx_installed >"$tmp/usual" || fail "ninja -t commands"
[ "$(set_of "$tmp/all")" = "$(set_of "$tmp/usual")" ] || fail "kernels of the rest: $(set_of "$tmp/all")"
for made in nvcc man.sh; do
    [ "$(grep -c "$made" "$tmp/all")" = "$(grep -c "$made" "$tmp/usual")" ] || fail "the rest lacks $made"
done
echo 0 >"$tmp/code"
DESTDIR=$tmp/root cmake --install "$quick" >"$tmp/said" 2>&1 # this ninja makes no files to copy
! grep -q complete.cmake "$quick/cmake_install.cmake" || fail "a complete directory would be built again"
echo "the first build: $objects files, kernels $(set_of "$tmp/first")"
