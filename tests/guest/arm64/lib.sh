# SPDX-License-Identifier: Apache-2.0
# lib.sh: shared by the tests of 64-bit Arm: a cross build in $NTX_BUILD/arm64 (NTX_ARM64_DIR). Sourced, not run. The
# caller defines skip and fail. NTX_ARM64_ROOT: the folder of the libraries for arm64. Without it the installed ones are
# used, or those that tests/run --long put into $NTX_BUILD/arm64.root (deploy/arm64-root).
arm64_dir=${NTX_ARM64_DIR:-$NTX_BUILD/arm64}

# arm64_configured [PACKAGE...]: sets arm64_root. The packages come into a root that is made here.
arm64_configured() {
    local tool
    for tool in aarch64-linux-gnu-gcc qemu-aarch64 cmake; do
        command -v "$tool" >/dev/null || skip "no $tool (crossbuild-essential-arm64, qemu-user)"
    done
    arm64_root=${NTX_ARM64_ROOT:-$arm64_dir.root}
    if [ -z "${NTX_ARM64_ROOT:-}" ] && [ "${NTX_LONG:-}" ]; then
        "$NTX_SOURCE/deploy/arm64-root" "$arm64_root" "$@" >"$arm64_root.log" 2>&1 ||
            skip "no libraries for arm64: $(tail -n 1 "$arm64_root.log")"
    elif [ ! -e "$arm64_root/usr/lib/aarch64-linux-gnu/pkgconfig/liburing.pc" ]; then
        arm64_root=
        [ -e /usr/lib/aarch64-linux-gnu/pkgconfig/liburing.pc ] ||
            skip "no libraries for arm64 (tests/run --long gets them)"
    fi
    export DPKG_ADMINDIR=$arm64_root.apt/dpkg # what cpack's dpkg-shlibdeps asks
    [ -d "$DPKG_ADMINDIR" ] || unset DPKG_ADMINDIR
    cmake -S "$NTX_SOURCE" -B "$arm64_dir" --toolchain "$NTX_SOURCE/cmake/arm64.cmake" -DNTX_ARM64_ROOT="$arm64_root" \
        -DNTX_TESTS=ON -DNTX_CLANG=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        >"$arm64_dir.log" 2>&1 || fail "cmake: $(tail -n 20 "$arm64_dir.log")"
}

# arm64_build TARGET...: no warnings.
arm64_build() {
    cmake --build "$arm64_dir" -j "$(nproc)" --target "$@" >"$arm64_dir.log" 2>&1 ||
        fail "cross build: $(tail -n 40 "$arm64_dir.log")"
    ! grep 'warning:' "$arm64_dir.log" || fail "warnings of the cross build"
}
