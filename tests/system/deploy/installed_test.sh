#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# After deploy/quickstart, `cmake --install build` works: the target ntx_installed makes all files that it takes from
# the build directory, with the CUDA plug-in and man pages if they are built at all. first_test.sh shows that an
# installation builds this target.
. "$(dirname "$0")/../../lib/test.sh"
command -v ninja >/dev/null && [ -e "$NTX_BUILD/build.ninja" ] ||
    skip "not built by ninja, which could tell what a target makes"
ninja -C "$NTX_BUILD" -t commands ntx_installed >"$tmp/all" || fail "ninja -t commands"
grep -Eo '(-o|touch) [^ ]+' "$tmp/all" | sed "s|^[^ ]* ||;s|^$NTX_BUILD/||" >"$tmp/made"
find "$NTX_BUILD" -name cmake_install.cmake -not -path "*/tests/*" -exec grep -h "file(INSTALL" {} + |
    grep -o "\"$NTX_BUILD/[^\"]*\"" | tr -d '"' | sed "s|^$NTX_BUILD/||" | sort -u >"$tmp/wanted"
[ "$(wc -l <"$tmp/wanted")" -ge 6 ] || fail "only these are installed out of the build directory: $(cat "$tmp/wanted")"
while read -r f; do
    case $f in
    deploy/man/*) f=deploy/man/stamp ;; # a directory: what makes it leaves a stamp
    esac
    grep -qx "$f" "$tmp/made" || fail "$f is installed, but ntx_installed does not make it"
done <"$tmp/wanted"
# kernels that are hardly optimised are not installed
if [ -e "$NTX_BUILD/bin/libntx-cuda.so" ] && grep -q '^NTX_CUDA_QUICK:BOOL=ON' "$NTX_BUILD/CMakeCache.txt"; then
    ! grep -qx bin/libntx-cuda.so "$tmp/wanted" || fail "kernels that are hardly optimised are installed"
    cmake -D CMAKE_INSTALL_PREFIX="$tmp/there" -P "$NTX_BUILD/cuda/cmake_install.cmake" 2>&1 |
        tr -s ' \n' ' ' >"$tmp/said"
    grep -q 'libntx-cuda.so is left out: .* -DNTX_CUDA_QUICK=OFF' "$tmp/said" ||
        fail "the installation does not say that kernels are left out: $(cat "$tmp/said")"
elif [ -e "$NTX_BUILD/bin/libntx-cuda.so" ]; then
    grep -qx bin/libntx-cuda.so "$tmp/wanted" || fail "the CUDA plug-in is built and not installed"
fi
grep -q -- '--target ntx_installed' "$NTX_SOURCE/cmake/complete.cmake" ||
    fail "complete.cmake does not build ntx_installed"
grep -qx 'targets=ntx_first .*' "$NTX_SOURCE/deploy/quickstart" || fail "quickstart does not build ntx_first"
echo "$(wc -l <"$tmp/wanted") things are installed from the build directory, and ntx_installed makes them all"
