# Settings that every target shares, and the functions that make targets.

set(CMAKE_CXX_STANDARD 23)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  # Hashes paths relative to the checkout, so that all checkouts of the user share the cache.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1 ${CCACHE})
endif()

# TARN_SANITIZE: a list for -fsanitize=, such as "address,undefined" or "thread".
set(TARN_SANITIZE "" CACHE STRING "sanitizers to build with")
option(TARN_FUZZ "build the fuzz targets with libFuzzer (needs clang)" OFF)

# No contraction of a*b+c to a fused operation: results must have the same bits on all nodes and in all runs.
set(flags -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>  # false positives of gcc 12 for moved variants
    -Wno-missing-field-initializers  # designated initializers name what differs from the default
    -ffp-contract=off -fno-math-errno)
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
# Programs search ../lib, which tools/bundle fills, for shared libraries first. The path is a DT_RPATH, because a
# DT_RUNPATH would not apply to the libraries that these libraries need.
set(CMAKE_BUILD_RPATH "$ORIGIN/../lib")
add_link_options(LINKER:--disable-new-dtags)
if(TARN_SANITIZE)
  add_compile_options(-fsanitize=${TARN_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TARN_SANITIZE})
endif()
if(TARN_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# tarn_library(core SOURCES a.cc b.cc [LINK tarn::x] [PRIVATE_LINK y]): static library tarn_core, alias tarn::core.
function(tarn_library name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;PRIVATE_LINK" ${ARGN})
  add_library(tarn_${name} STATIC ${arg_SOURCES})
  add_library(tarn::${name} ALIAS tarn_${name})
  target_include_directories(tarn_${name} PUBLIC ${PROJECT_SOURCE_DIR})
  target_compile_features(tarn_${name} PUBLIC cxx_std_23)
  target_link_libraries(tarn_${name} PUBLIC ${arg_LINK} PRIVATE ${arg_PRIVATE_LINK})
endfunction()

# tarn_program(tarn-server SOURCES main.cc LINK tarn::server): an executable in bin/.
function(tarn_program name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK})
endfunction()

# tarn_join(unit_tests core_test): building unit_tests builds core_test, too.
function(tarn_join group name)
  if(NOT TARGET ${group})
    add_custom_target(${group})
  endif()
  add_dependencies(${group} ${name})
endfunction()

# tarn_test(core_test LABEL unit SOURCES hash_test.cc fake.cc [THREADS hash_test.cc] LINK tarn::core): a GoogleTest
# program, and a ctest entry for each of its files NAME_test.cc, named by the label and the path below tests/unit
# (unit.core/hash_test). THREADS: the sources that also run under ThreadSanitizer (label threads). The target unit_tests
# builds all programs of the label unit; threads_tests builds all programs with THREADS.
function(tarn_test name)
  cmake_parse_arguments(arg "" "LABEL;TIMEOUT" "SOURCES;THREADS;LINK" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE ${arg_LINK} tarn::test_main)
  target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)  # builds faster; libraries keep -O3
  tarn_join(${arg_LABEL}_tests ${name})
  if(arg_THREADS)
    tarn_join(threads_tests ${name})
  endif()
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  foreach(source ${arg_THREADS})
    if(NOT source IN_LIST arg_SOURCES)
      message(FATAL_ERROR "tarn_test(${name}): THREADS names ${source}, which is not in SOURCES")
    endif()
  endforeach()
  foreach(source ${arg_SOURCES})
    if(NOT source MATCHES "_test\\.cc$")
      continue()
    endif()
    cmake_path(ABSOLUTE_PATH source OUTPUT_VARIABLE path)
    cmake_path(RELATIVE_PATH path BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(REGEX REPLACE "^tests/unit/(.*)\\.cc$" "${arg_LABEL}.\\1" test ${path})
    add_test(NAME ${test} COMMAND ${name} --source=${path})
    set_tests_properties(${test} PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${arg_TIMEOUT})
    if(source IN_LIST arg_THREADS)
      set_tests_properties(${test} PROPERTIES LABELS "${arg_LABEL};threads")
    endif()
    if(arg_LABEL STREQUAL gpu)
      # The list of skipped tests ends the output only if no test has failed.
      set_tests_properties(${test} PROPERTIES
        SKIP_REGULAR_EXPRESSION "tests?, listed below:\n(\\[  SKIPPED \\] [A-Za-z0-9_./]+\n)+$")
    endif()
  endforeach()
endfunction()

# tarn_fuzz(job_file_fuzz SOURCES job_file_fuzz.cc LINK tarn::core CORPUS corpus/job_file): a program around
# LLVMFuzzerTestOneInput. With TARN_FUZZ libFuzzer drives it (bin/NAME CORPUS... -runs=100000). Without, it replays the
# corpus and some mutations of it, as the ctest entry unit.NAME; the entry slow.NAME is a long run in the fuzz preset.
# CORPUS: files or folders, relative to the caller's folder.
function(tarn_fuzz name)
  cmake_parse_arguments(arg "" "" "SOURCES;LINK;CORPUS" ${ARGN})
  if(TARN_FUZZ)
    add_executable(${name} ${arg_SOURCES})
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_executable(${name} ${arg_SOURCES} ${PROJECT_SOURCE_DIR}/tests/fuzz/replay_main.cc)
    list(TRANSFORM arg_CORPUS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    add_test(NAME unit.${name} COMMAND ${name} --runs 2000 --seed 1 ${arg_CORPUS})
    set_tests_properties(unit.${name} PROPERTIES LABELS unit TIMEOUT 300)
    tarn_join(unit_tests ${name})
    add_test(NAME slow.${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/fuzz/run ${name} 1000000 ${arg_CORPUS})
    set_tests_properties(slow.${name} PROPERTIES LABELS slow TIMEOUT 7200 RUN_SERIAL ON)
  endif()
  target_link_libraries(${name} PRIVATE ${arg_LINK})
endfunction()
