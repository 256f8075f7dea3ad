# CUDA, where a toolkit is found: CMAKE_CUDA_COMPILER or CUDACXX if given, that of `tools/install cuda`, or the one on
# the PATH. TARN_HAS_CUDA says whether. No GPU is needed to build.

option(TARN_CUDA "build the CUDA kernels where a toolkit is found" ON)
set(TARN_HAS_CUDA OFF)
if(TARN_CUDA AND NOT TARN_SANITIZE AND NOT TARN_FUZZ)
  include(CheckLanguage)
  set(installed ${PROJECT_SOURCE_DIR}/build/cuda-toolkit/nvidia/cu13)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS ${installed}/bin/nvcc)
    set(CMAKE_CUDA_COMPILER ${installed}/bin/nvcc CACHE FILEPATH "CUDA's compiler")
    set(CUDAToolkit_ROOT ${installed})
  endif()
  if(NOT CMAKE_CUDA_HOST_COMPILER)
    set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
  endif()
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    # Machine code for the A100 and the H100 and H200, and PTX for what comes after.
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90-real 90-virtual CACHE STRING "GPUs to build for")
    enable_language(CUDA)
    set(CMAKE_CUDA_STANDARD 17)  # the newest that CMake 3.25 knows
    find_package(CUDAToolkit REQUIRED)
    set(TARN_HAS_CUDA ON)
    if(CCACHE)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
  endif()
endif()
message(STATUS "CUDA: ${TARN_HAS_CUDA}")
