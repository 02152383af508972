# CUDA for Hopper: real code of sm_90a alone, whose wgmma and bulk copies no other target has.
set(CMAKE_CUDA_ARCHITECTURES 90a-real)
# The program starts on machines that have no CUDA: cudart is in it, and finds the driver at run time.
set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
if(NOT CMAKE_CUDA_COMPILER)
  find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDACXX PATHS /usr/local/cuda/bin)
endif()
enable_language(CUDA)
# By hand: CMake 3.25 does not know yet that nvcc has C++20.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA_STANDARD 20)
# fmt 9 takes nvcc for a compiler without constexpr.
add_compile_definitions($<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)
find_package(CUDAToolkit 13.0 REQUIRED)
if(LONGSPAN_CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${LONGSPAN_CCACHE})
endif()
