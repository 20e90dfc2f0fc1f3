# NTX_COMMIT: the commit this build was made from, for --version and for the refusal of mixed daemons.
find_package(Git QUIET)
set(NTX_COMMIT "unknown")
if(GIT_FOUND)
  execute_process(COMMAND ${GIT_EXECUTABLE} -C ${CMAKE_SOURCE_DIR} rev-parse --short=12 HEAD
                  OUTPUT_VARIABLE NTX_COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(NOT NTX_COMMIT)
    set(NTX_COMMIT "unknown")
  endif()
endif()
configure_file(${CMAKE_SOURCE_DIR}/common/version.h.in ${CMAKE_BINARY_DIR}/generated/ntx_version.h @ONLY)
include_directories(${CMAKE_BINARY_DIR}/generated)
