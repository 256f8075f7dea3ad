// Finds NVIDIA's libraries on a machine other than the one that tarn was built on. Works in builds without CUDA too.
//
// A library is searched for, in this order, in
//   the folders of $TARN_CUDA_LIBRARIES, separated by ':'
//   the loader's search path: ../lib beside the program, $LD_LIBRARY_PATH, ldconfig's folders
//   /usr/local/cuda/lib64, then /usr/local/cuda-*/lib64
//   nvidia/cu*/lib of the Python packages of $VIRTUAL_ENV, $CONDA_PREFIX, every PREFIX/bin/python3 of $PATH, ~/.local,
//   /usr/local and /usr, where `pip install nvidia-cublas` and torch put it
// If a place has several, the last by name is used, which is usually the newest. Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"

namespace tarn::kernels {

// These places, as patterns of glob(3); an empty string stands for the loader's search path.
std::vector<std::string> CudaLibraryFolders();

// Loads the library of that name (libcublasLt.so.13) from the first of `folders` that has a suitable one. `lacks`, if
// given, returns what a loaded library lacks, or an empty string if it is suitable. The library stays loaded; the
// handle is dlopen's. kUnavailable: no folder has one; the message lists the folders, and why a library that exists
// cannot be loaded or what it lacks.
Expected<void*> LoadCudaLibrary(const std::string& name, const std::vector<std::string>& folders,
                                const std::function<std::string(void* library)>& lacks = {});

}  // namespace tarn::kernels
