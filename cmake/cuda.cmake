# Finds a CUDA toolkit: that of CMAKE_CUDA_COMPILER or CUDACXX if one is set, else that of `tools/install cuda`, else
# the one on the PATH. Sets TARN_HAS_CUDA: ON if a toolkit with cuBLAS was found. The build needs no GPU.

option(TARN_CUDA "build the CUDA kernels where a toolkit is found" ON)
set(TARN_HAS_CUDA OFF)
# Set to OFF below if `tools/install cuda` can still change the result: tools/build then configures again once a toolkit
# is installed.
set(settled ON)
if(TARN_CUDA AND NOT TARN_SANITIZE AND NOT TARN_FUZZ)
  include(CheckLanguage)
  set(installed ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/nvidia/cu13)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS ${installed}/bin/nvcc)
    set(CMAKE_CUDA_COMPILER ${installed}/bin/nvcc CACHE FILEPATH "CUDA's compiler" FORCE)
    set(CUDAToolkit_ROOT ${installed})
  endif()
  if(NOT CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # Machine code for the A100, the H100 and the H200, and PTX for newer GPUs.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual CACHE STRING "GPUs to build for")
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)  # the newest that CMake 3.25 knows
    find_package(CUDAToolkit REQUIRED)
    if(TARGET CUDA::cublasLt)
      set(TARN_HAS_CUDA ON)
      # Programs load cuBLASLt when they use a GPU (kernels/cuda/cublas_lt.h).
      list(APPEND CMAKE_BUILD_RPATH ${CUDAToolkit_LIBRARY_DIR})
    else()
      message(STATUS "CUDA: ${CMAKE_CUDA_COMPILER} has no cuBLAS beside it; tools/install cuda installs both")
    endif()
    if(CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
  endif()
  if(NOT TARN_HAS_CUDA AND NOT DEFINED ENV{CUDACXX} AND NOT CMAKE_CUDA_COMPILER STREQUAL ${installed}/bin/nvcc)
    set(settled OFF)
  endif()
endif()
set(TARN_CUDA_SETTLED ${settled} CACHE INTERNAL "ON: a toolkit that is installed later does not change TARN_HAS_CUDA")
message(STATUS "CUDA: ${TARN_HAS_CUDA}")
