#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# deploy/release twice, in two checkouts at paths of different lengths: the same bytes in every file, for amd64 and for
# arm64. The second checkout has a compiler's cache in its environment, which must not matter.
#
# Two whole builds, with the CUDA plug-in where nvcc is: part of tests/run --long.
. "$(dirname "$0")/../../lib/test.sh"
[ "${NTX_LONG:-}" ] || skip "part of tests/run --long (NTX_LONG is set there)"
sanitized && skip "a release of sanitized programs is no release"
[ "$(dpkg --print-architecture 2>/dev/null)" = amd64 ] || skip "releases are built on amd64"
git -C "$NTX_SOURCE" rev-parse -q --verify HEAD >/dev/null 2>&1 || skip "no commit here"
# shellcheck disable=SC1091
. "$NTX_SOURCE/deploy/packages.sh"
# shellcheck disable=SC2154,SC2086
[ -z "$(packages_missing $ntx_build_packages dpkg-dev file binutils ncurses-base crossbuild-essential-arm64 \
    qemu-user)" ] ||
    skip "packages of deploy/release are missing"
one=$tmp/one two=$tmp/a/second/place
for at in "$one" "$two"; do
    git clone -q "$NTX_SOURCE" "$at" || fail "git clone"
done
"$one/deploy/release" --out "$tmp/dist1" >"$tmp/log" 2>&1 || fail "$(tail -n 20 "$tmp/log")"
rm -rf "$one"
launcher=$(command -v ccache)
CFLAGS=-O1 CMAKE_C_COMPILER_LAUNCHER=$launcher "$two/deploy/release" --out "$tmp/dist2" >"$tmp/log" 2>&1 ||
    fail "$(tail -n 20 "$tmp/log")"
same "$tmp/dist1/SHA256SUMS" "$tmp/dist2/SHA256SUMS" "the sums of two releases of one commit"
(cd "$tmp/dist1" && sha256sum --quiet -c SHA256SUMS) && (cd "$tmp/dist2" && sha256sum --quiet -c SHA256SUMS) ||
    fail "SHA256SUMS does not hold"
[ "$(wc -l <"$tmp/dist1/SHA256SUMS")" = 6 ] || fail "six files were to be made: $(cat "$tmp/dist1/SHA256SUMS")"
for arch in amd64 arm64; do
    [ "$(dpkg-deb -f "$tmp"/dist1/ntx_*_$arch.deb Architecture)" = $arch ] || fail "the package for $arch"
done
! command -v nvcc >/dev/null || dpkg-deb -c "$tmp"/dist1/ntx_*_amd64.deb | grep -q '/lib/ntx/libntx-cuda.so$' ||
    fail "no CUDA plug-in in the package"
echo "the same bytes twice: $(cd "$tmp/dist1" && du -ch ntx* | tail -n 1 | cut -f 1) in 6 files"
