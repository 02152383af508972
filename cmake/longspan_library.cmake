# One room of src/ = one folder = one library. Sources and the unit tests beside them are found by name:
# foo_test.cc is a test, every other .cc belongs to the library.

# What nearly every source includes, compiled once. Sources include what they use all the same: clang-tidy reads them
# without it (tools/run_tidy.py).
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/prelude.cc CONTENT "")
add_library(longspan_prelude OBJECT ${PROJECT_BINARY_DIR}/prelude.cc)
target_link_libraries(longspan_prelude PRIVATE fmt::fmt spdlog::spdlog)
target_precompile_headers(longspan_prelude PRIVATE ${PROJECT_SOURCE_DIR}/cmake/prelude.h)

# longspan_library(NAME [ONE_THREAD] [DEPS target...])
# Declares the library longspan_NAME of the current folder, and with LONGSPAN_TESTS the test program NAME_test.
function(longspan_library name)
  cmake_parse_arguments(ARG "ONE_THREAD" "" "DEPS;TEST_DEPS" ${ARGN})
  set(threads "")
  if(ARG_ONE_THREAD)
    set(threads ONE_THREAD)
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  add_library(longspan_${name} STATIC ${sources})
  target_include_directories(longspan_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(longspan_${name} PUBLIC ${ARG_DEPS})
  target_precompile_headers(longspan_${name} REUSE_FROM longspan_prelude)
  set_property(GLOBAL APPEND PROPERTY LONGSPAN_ROOMS longspan_${name})
  if(LONGSPAN_TESTS AND tests)
    longspan_test(${name}_test ${threads} SOURCES ${tests} DEPS longspan_${name} ${ARG_TEST_DEPS})
  endif()
endfunction()

# What the sanitizers run: the address sanitizer all fast tests, the thread sanitizer those that have threads to race.
add_custom_target(fast_tests)
add_custom_target(threaded_tests)

# What nearly every test includes, likewise.
if(LONGSPAN_TESTS)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/test_prelude.cc CONTENT "")
  add_library(longspan_test_prelude OBJECT ${PROJECT_BINARY_DIR}/test_prelude.cc)
  target_link_libraries(longspan_test_prelude PRIVATE fmt::fmt spdlog::spdlog GTest::gmock)
  target_precompile_headers(longspan_test_prelude PRIVATE ${PROJECT_SOURCE_DIR}/cmake/prelude.h
                            <fstream> <gmock/gmock.h> <gtest/gtest.h>)
endif()

# A test's own loops are short, and compiling them is not: nothing of what it tests is compiled with it. The sanitizers'
# builds compile nearly everything so, with less yet.
function(longspan_compile_quickly target)
  if(NOT LONGSPAN_SANITIZER)
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
endfunction()

# What computes is optimised under the sanitizers too, or its tests would take most of their time.
function(longspan_compute target)
  if(LONGSPAN_SANITIZER)
    target_compile_options(${target} PRIVATE -O1)
    set_target_properties(${target} PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
  endif()
endfunction()
if(LONGSPAN_TESTS)
  longspan_compile_quickly(longspan_test_prelude)
endif()

# longspan_test(NAME [ONE_THREAD] [RUN_SERIAL] SOURCES file... DEPS target... [LABEL fast|process|slow]
#               [TIMEOUT seconds] [EXHAUSTIVE filter])
# A GoogleTest program whose cases ctest runs one by one. Its label says where it runs: fast tests everywhere; process
# (tests that start real processes, quick too) not under the sanitizers; slow ones in CI. EXHAUSTIVE: cases, by
# GoogleTest's pattern, that vary what the others hold already, in more ways than CI has time for. ONE_THREAD: no code is
# tested here that threads share, or others test it with more of them. RUN_SERIAL: no other test runs beside.
function(longspan_test name)
  cmake_parse_arguments(ARG "ONE_THREAD;RUN_SERIAL" "LABEL;TIMEOUT;EXHAUSTIVE" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_LABEL)
    set(ARG_LABEL fast)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  target_precompile_headers(${name} REUSE_FROM longspan_test_prelude)
  longspan_compile_quickly(${name})
  target_compile_definitions(${name} PRIVATE LONGSPAN_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                             LONGSPAN_PROGRAM="${PROJECT_BINARY_DIR}/longspan")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  if(ARG_LABEL STREQUAL fast)
    add_dependencies(fast_tests ${name})
    if(ARG_ONE_THREAD)
      set(ARG_LABEL fast_one_thread)
    else()
      add_dependencies(threaded_tests ${name})
    endif()
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ${ARG_RUN_SERIAL})
  set(filter "*")
  if(ARG_EXHAUSTIVE)
    set(filter "-${ARG_EXHAUSTIVE}")
    gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_FILTER ${ARG_EXHAUSTIVE} TEST_LIST ${name}_exhaustive
                         PROPERTIES LABELS exhaustive ${properties})
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_FILTER ${filter} PROPERTIES LABELS ${ARG_LABEL} ${properties})
endfunction()
