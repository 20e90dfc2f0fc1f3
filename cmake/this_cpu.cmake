# SPDX-License-Identifier: Apache-2.0
# ntx_this_cpu(VARIABLE SETS): those of the sets of kernels that this machine's processor needs; computed/cpu/pick.c
# selects by the same flags at run time. generic is always among them.
function(ntx_this_cpu variable sets)
  set(here generic)
  set(flags "")
  if(EXISTS /proc/cpuinfo AND NOT CMAKE_CROSSCOMPILING)
    file(STRINGS /proc/cpuinfo lines REGEX "^(flags|Features)[ \t]*:" LIMIT_COUNT 1)
    string(REGEX MATCHALL "[^ \t:]+" flags "${lines}")
  endif()
  set(avx2_needs avx2 fma f16c)
  set(avx512_needs avx512f avx512bw avx512vl avx512dq avx512_vnni)
  set(neon_needs asimddp)
  foreach(set ${sets}) # from the oldest on; a set may call kernels of those before it
    set(missing ${${set}_needs})
    list(REMOVE_ITEM missing ${flags} none)
    if(NOT set STREQUAL "generic" AND NOT missing)
      list(APPEND here ${set})
    endif()
  endforeach()
  set(${variable} "${here}" PARENT_SCOPE)
endfunction()
