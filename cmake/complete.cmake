# SPDX-License-Identifier: Apache-2.0
# Builds in NTX_BUILD what deploy/quickstart left out: kernels of other processors, the CUDA plug-in, man pages. Part of
# the installation of a directory with NTX_THIS_CPU. Also: cmake -DNTX_BUILD=DIRECTORY -P cmake/complete.cmake
if(NOT NTX_BUILD)
  message(FATAL_ERROR "usage: cmake -DNTX_BUILD=build -P cmake/complete.cmake")
endif()
get_filename_component(NTX_BUILD "${NTX_BUILD}" ABSOLUTE)
# As root: by the owner of the directory, so that its files stay that user's.
set(as "")
execute_process(COMMAND id -u OUTPUT_VARIABLE me OUTPUT_STRIP_TRAILING_WHITESPACE)
execute_process(COMMAND stat -c %u ${NTX_BUILD} OUTPUT_VARIABLE owner OUTPUT_STRIP_TRAILING_WHITESPACE)
find_program(setpriv setpriv)
if(me EQUAL 0 AND NOT owner EQUAL 0 AND setpriv)
  execute_process(COMMAND stat -c %g ${NTX_BUILD} OUTPUT_VARIABLE group OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(as ${setpriv} --reuid=${owner} --regid=${group} --clear-groups)
endif()
message(STATUS "Building the rest in ${NTX_BUILD}: kernels of other processors, plug-ins, man pages (some minutes)")
execute_process(COMMAND ${as} ${CMAKE_COMMAND} -E touch ${NTX_BUILD}/incomplete)
execute_process(COMMAND ${as} ${CMAKE_COMMAND} -DNTX_THIS_CPU=OFF ${NTX_BUILD} OUTPUT_QUIET RESULT_VARIABLE failed)
if(NOT failed)
  execute_process(COMMAND ${as} ${CMAKE_COMMAND} --build ${NTX_BUILD} --parallel --target ntx_installed
                  RESULT_VARIABLE failed)
endif()
if(failed)
  message(FATAL_ERROR "Nothing is installed: ${NTX_BUILD} has this processor's programs only, and the rest does not "
    "build. To see why: cmake -DNTX_THIS_CPU=OFF ${NTX_BUILD} && cmake --build ${NTX_BUILD} --target ntx_installed")
endif()
# Complete now: without the file, the directory's next installation begins with copying.
execute_process(COMMAND ${as} ${CMAKE_COMMAND} -E rm -f ${NTX_BUILD}/incomplete)
execute_process(COMMAND ${as} ${CMAKE_COMMAND} ${NTX_BUILD} OUTPUT_QUIET)
