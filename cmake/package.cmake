# SPDX-License-Identifier: Apache-2.0
# `cpack` in the build directory makes a .deb: programs, units, configuration, man pages, completion, the documents, copyright. What it depends on is found by
# dpkg-shlibdeps. A package belongs to /usr, with its configuration in /etc.
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME ntx)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "ntx")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs language models bigger than memory, streamed from the drive")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(NTX_LIBCURL MATCHES "gnutls") # no program is linked with it (client/pull/curl.h)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS libcurl3-gnutls)
else()
  set(CPACK_DEBIAN_PACKAGE_DEPENDS libcurl4)
endif()
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64) # else it is the building machine's
  if(NTX_ARM64_ROOT) # whose packages are not this machine's: tests/guest/arm64/root.sh keeps what dpkg-shlibdeps asks for
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${NTX_ARM64_ROOT}/usr/lib/aarch64-linux-gnu)
  endif()
endif()
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "systemd, ca-certificates")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/debian/conffiles ${CMAKE_SOURCE_DIR}/deploy/debian/postinst
    ${CMAKE_SOURCE_DIR}/deploy/debian/prerm ${CMAKE_SOURCE_DIR}/deploy/debian/postrm)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
