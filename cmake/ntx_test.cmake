# SPDX-License-Identifier: Apache-2.0
# Checks a test's name: ROOM-SUBJECT, its folder and then words with - between them.
function(ntx_test_name name)
  get_filename_component(room ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  if(NOT name MATCHES "^${room}-[a-z0-9.-]+$")
    message(FATAL_ERROR "test ${name}: a name is ${room}- and words with - between them")
  endif()
endfunction()

# ntx_test(NAME name SOURCES a.c ... LIBS x ... [TIMEOUT s] [ARGS ...]): one program, one process, 0 pass, 77 skip.
function(ntx_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT" "SOURCES;LIBS;ARGS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 180)
  endif()
  ntx_test_name(${T_NAME})
  add_executable(test_${T_NAME} ${T_SOURCES})
  target_link_libraries(test_${T_NAME} PRIVATE ${T_LIBS})
  set_target_properties(test_${T_NAME} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  if(NTX_SANITIZE AND NTX_KERNELS AND T_NAME IN_LIST ntx_test_plain)
    set_target_properties(test_${T_NAME} PROPERTIES EXCLUDE_FROM_ALL ON) # tests/run does not run it there
  endif()
  ntx_add_test(${T_NAME} $<TARGET_FILE:test_${T_NAME}> ${T_ARGS})
  ntx_test_environment(${T_NAME} ${T_TIMEOUT})
endfunction()

# ntx_add_test(name program [argument ...]): runs it with private directories (tests/alone), in the emulator of a cross
# build. The caller then sets its environment.
function(ntx_add_test name)
  add_test(NAME ${name} COMMAND ${CMAKE_SOURCE_DIR}/tests/alone ${CMAKE_CROSSCOMPILING_EMULATOR} ${ARGN})
endfunction()

# ntx_script_test(NAME name SCRIPT file [TIMEOUT s] [ARGS ...]): a shell or Python test that uses build/bin.
function(ntx_script_test)
  cmake_parse_arguments(T "" "NAME;TIMEOUT;SCRIPT" "ARGS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 300)
  endif()
  ntx_test_name(${T_NAME})
  add_test(NAME ${T_NAME} COMMAND ${CMAKE_SOURCE_DIR}/tests/alone ${CMAKE_CURRENT_SOURCE_DIR}/${T_SCRIPT} ${T_ARGS})
  ntx_test_environment(${T_NAME} ${T_TIMEOUT})
  set_tests_properties(${T_NAME} PROPERTIES DISABLED "${CMAKE_CROSSCOMPILING}") # its programs are another machine's
endfunction()

# NTX_TEST_SLOW: factor of time limits, since sanitizers and emulators are slow.
# TSan's reports go to files, since a test does not see its daemons' output. For tests/run each file is a failure.
set(ntx_test_slow 1)
set(ntx_test_more "")
if(NTX_SANITIZE MATCHES "thread")
  set(ntx_test_slow 10)
  set(ntx_test_more ";TSAN_OPTIONS=log_path=${CMAKE_BINARY_DIR}/tsan/report")
  file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/tsan)
elseif(NTX_SANITIZE)
  set(ntx_test_slow 3)
  # computed/cpu traps on undefined behaviour. With the default quarantine fresh pages cost a fifth of some tests' time.
  set(ntx_test_more ";ASAN_OPTIONS=handle_sigill=1:quarantine_size_mb=64")
elseif(CMAKE_CROSSCOMPILING) # by an emulator
  set(ntx_test_slow 30)
endif()

# The longest tests begin first, so that none runs alone at the end; a new build directory has no times yet. The busy
# tests compute on more than one core all the time: they take two places, and begin before all others, since later no
# two places are free at once.
set(ntx_test_busy cuda-pass-fake cuda-pipeline pipeline-drafter server-prefix)
set(ntx_test_longest
    quantize-command pass-same-types pass-same-layers pass-same-experts pass-same-states pass-same-caches
    pass-golden-shapes cuda-experts-fake cuda-kinds-fake ranks-same ranks-mpi delta-command delta-lora pipeline-holes
    pipeline-predicted models-quality pipeline-learned-skip golden-made plan-agree plan-cli analyze-command
    deploy-systemd pipeline-draft pipeline-progress pipeline-kill pipeline-drives server-death server-crowd
    server-sessions pass-tree pass-sparse cpu-attend cpu-matmul cpu-matmul-tiles template-limits tokenizer-round
    pipeline-bad-numbers pipeline-experts)

# Tests that compute the same numbers in many ways, test kernels (whose guard pages find what they read too much), read
# texts, or run no sanitized program. Sanitizers find nothing there that other tests do not show, so tests/run leaves
# them out of the sanitized build (NTX_KERNELS); tests/run --long does not.
set(ntx_test_plain
    analyze-command cpu-attend cpu-columns cpu-matmul cpu-matmul-tiles cpu-ops cuda-kernels-former delta-command
    delta-lora deploy-installed deploy-package deploy-packages deploy-removed deploy-units golden-greedy
    golden-logits golden-made golden-perplexity golden-shapes models-corpus models-quality models-torch
    pass-golden-made pass-golden-reference pass-golden-shapes pass-same-caches pass-same-experts pass-same-layers
    pass-same-states pass-same-types pass-sparse pass-tree plan-agree plan-cli quantize-command ranks-same
    style-alone style-docs style-form style-format style-rooms style-words template-package types-places)

# ctest -L quick, tests/run --quick: some tests of every folder, in two minutes on two idle processors (style-alone
# checks that no folder is left out).
set(ntx_test_quick
    picture-decode picture-fit
    analyze-numbers common-printable cpu-columns cpu-ops cuda-routed-fake delta-lora proto-config deploy-packages
    client-logits-base pass-fail pass-drafter-files pass-parts fuzz-config fuzz-pull gateway-structured
    golden-greedy grammar-calls grammar-refused style-alone style-rooms style-words iod-core iod-demands
    sandbox-workers model-arch model-chunk model-gguf model-quant model-quantize model-split models-corpus
    pipeline-errors pipeline-found pipeline-streamed plan-placement plan-cache plan-predict predictor-policy
    predictor-script proto-frame proto-link proto-peer proto-request proto-settings pull-command pull-parts
    ranks-pair ranks-share pass-sampler server-files server-loads server-rights engine-text shm-counters
    shm-memlimit shm-region weights-prefetch template-cases reply-parts tokenizer-chat-templates tokenizer-pre
    tokenizer-tiny top-trace types-places vision-towers)

# NTX_DATA: reference models made with another engine; tests that need it exit 77 where it is absent. NTX_REAL, of the
# caller: published models, likewise.
# timeout: seconds on an idle machine, which tests/alone stretches. ctest's own limit is beyond it.
function(ntx_test_environment name timeout)
  math(EXPR timeout "${timeout} * ${ntx_test_slow}")
  math(EXPR last "${timeout} * 4 + 60")
  set(environment NTX_TEST_LIMIT=${timeout} XDG_CONFIG_HOME=${CMAKE_BINARY_DIR}/no-config
      NTX_TEST_SLOW=${ntx_test_slow} NTX_SOURCE=${CMAKE_SOURCE_DIR} NTX_BUILD=${CMAKE_BINARY_DIR}
      NTX_BIN=${CMAKE_BINARY_DIR}/bin NTX_DATA=${CMAKE_SOURCE_DIR}/../shared/data)
  set_tests_properties(${name} PROPERTIES
    SKIP_RETURN_CODE 77 TIMEOUT ${last} ENVIRONMENT "${environment}${ntx_test_more}")
  if(name IN_LIST ntx_test_quick)
    set_property(TEST ${name} APPEND PROPERTY LABELS quick)
  endif()
  if(name IN_LIST ntx_test_plain)
    set_property(TEST ${name} APPEND PROPERTY LABELS plain)
  endif()
  if(name IN_LIST ntx_test_longest)
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
  if(name IN_LIST ntx_test_busy)
    set_tests_properties(${name} PROPERTIES PROCESSORS 2 COST 200)
  endif()
endfunction()
