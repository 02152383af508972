# Code that libFuzzer can watch: which branches an input takes, and what it is compared with.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  message(FATAL_ERROR "LONGSPAN_FUZZ needs clang++: use the preset fuzz")
endif()
add_compile_options(-fsanitize=fuzzer-no-link)
# clang 14 cannot assemble coroutines with the sanitizer of calls through function pointers.
function(longspan_has_coroutines target)
  target_compile_options(${target} PRIVATE -fno-sanitize=function)
endfunction()
if(CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  # It has C++20's coroutines, and says so to neither the library nor Asio.
  add_compile_definitions(__cpp_impl_coroutine=201902L BOOST_ASIO_HAS_CO_AWAIT BOOST_ASIO_HAS_STD_COROUTINE)
endif()
