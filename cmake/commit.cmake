# SPDX-License-Identifier: Apache-2.0
# NTX_COMMIT: the commit of this build, for --version and to refuse daemons of different builds.
find_package(Git QUIET)
set(NTX_COMMIT "unknown")
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${CMAKE_SOURCE_DIR} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE NTX_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT NTX_COMMIT)
    set(NTX_COMMIT "unknown")
  endif()
  # Run cmake again after a pull or a commit.
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${CMAKE_SOURCE_DIR} rev-parse --git-path logs/HEAD
                  OUTPUT_VARIABLE ntx_moves OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  get_filename_component(ntx_moves "${ntx_moves}" ABSOLUTE BASE_DIR ${CMAKE_SOURCE_DIR})
  if(EXISTS ${ntx_moves} AND NOT IS_DIRECTORY ${ntx_moves})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ntx_moves})
  endif()
endif()
configure_file(${CMAKE_SOURCE_DIR}/common/version.h.in ${CMAKE_BINARY_DIR}/generated/ntx_version.h @ONLY)
include_directories(${CMAKE_BINARY_DIR}/generated)
