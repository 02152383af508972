# Checks of the source tree itself: self-contained headers, and the tests of the checking tools.

# Whether the source beside a header of the program includes it before anything else: clang-tidy, which reads that
# source without a precompiled header, shows what check_headers shows. (It does not read the sources of tests.)
function(longspan_source_begins_with header result)
  string(REGEX REPLACE "\\.h$" ".cc" source ${header})
  set(first "")
  if(header MATCHES "^(src|apps)/" AND EXISTS ${PROJECT_SOURCE_DIR}/${source})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${source} first REGEX "^#include" LIMIT_COUNT 1)
  endif()
  string(REGEX REPLACE "^src/" "" name ${header})
  if(first STREQUAL "#include \"${name}\"")
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

# check_headers: compiles headers on their own, so that none leans on what its includer happened to include first.
# Not part of `all`: ninja -C build check_headers.
function(longspan_check_headers)
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
       ${PROJECT_SOURCE_DIR}/src/*.h ${PROJECT_SOURCE_DIR}/apps/*.h
       ${PROJECT_SOURCE_DIR}/tests/*.h ${PROJECT_SOURCE_DIR}/bench/*.h)
  if(NOT LONGSPAN_CUDA)
    list(FILTER headers EXCLUDE REGEX "^src/backend/cuda/")
  endif()
  set(sources "")
  foreach(header IN LISTS headers)
    longspan_source_begins_with(${header} shown)
    if(shown)
      continue()
    endif()
    set(source ${PROJECT_BINARY_DIR}/check_headers/${header}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${PROJECT_SOURCE_DIR}/${header}\"\n")
    # Its headers are written for the instruction sets that its sources are compiled for.
    if(header MATCHES "^src/backend/cpu/" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
      set_source_files_properties(${source} PROPERTIES
                                  COMPILE_OPTIONS "-march=x86-64-v4;-mavx512bf16")
    endif()
    list(APPEND sources ${source})
  endforeach()
  add_library(check_headers OBJECT EXCLUDE_FROM_ALL ${sources})
  target_include_directories(check_headers PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(check_headers PRIVATE -O0)
  # What longspan_test defines.
  target_compile_definitions(check_headers PRIVATE LONGSPAN_SOURCE_DIR="" LONGSPAN_PROGRAM="")
  # What the rooms hand on to their users (include folders, definitions of libraries).
  get_property(rooms GLOBAL PROPERTY LONGSPAN_ROOMS)
  target_link_libraries(check_headers PRIVATE ${rooms})
endfunction()

function(longspan_check_tools)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  file(GLOB tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/tools/*_test.py)
  foreach(test IN LISTS tests)
    get_filename_component(name ${test} NAME_WE)
    add_test(NAME tools.${name} COMMAND ${Python3_EXECUTABLE} ${test})
    set_tests_properties(tools.${name} PROPERTIES LABELS fast TIMEOUT 60)
  endforeach()
endfunction()

longspan_check_headers()
longspan_check_tools()
