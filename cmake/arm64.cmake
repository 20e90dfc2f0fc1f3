# SPDX-License-Identifier: Apache-2.0
# arm64.cmake: builds for 64-bit Arm on another machine: cmake --toolchain cmake/arm64.cmake. It needs the compiler
# (crossbuild-essential-arm64) and the libraries (dpkg --add-architecture arm64; apt install liburing-dev:arm64 and so
# on), either installed or unpacked below NTX_ARM64_ROOT. Tests run under qemu-user, as the processor that $QEMU_CPU
# names (default: one with all features).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(NTX_ARM64_ROOT "" CACHE PATH "directory with the unpacked libraries for arm64; empty: they are installed")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NTX_ARM64_ROOT)
set(ENV{PKG_CONFIG_LIBDIR}
    "${NTX_ARM64_ROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${NTX_ARM64_ROOT}/usr/share/pkgconfig")
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${NTX_ARM64_ROOT}")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu)
if(NTX_ARM64_ROOT)
  set(CMAKE_SYSROOT ${NTX_ARM64_ROOT})
  set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L ${NTX_ARM64_ROOT})
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
