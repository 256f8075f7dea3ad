// Where NVIDIA's libraries are on a machine that tarn was not built on. Without CUDA too: it only looks.
//
// A library is looked for, in this order, in
//   the folders of $TARN_CUDA_LIBRARIES, divided by ':'
//   what the loader knows: ../lib beside the program, $LD_LIBRARY_PATH, ldconfig's folders
//   /usr/local/cuda/lib64, then /usr/local/cuda-*/lib64
//   nvidia/cu*/lib of the Python packages of $VIRTUAL_ENV, $CONDA_PREFIX, every python3 of $PATH, ~/.local, /usr/local
//   and /usr, where `pip install nvidia-cublas` puts it, and torch with it
// Of several in one place the last by name is taken, which mostly is the newest. Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/error.h"

namespace tarn::kernels {

// Those places, as patterns of glob(3); empty for what the loader knows.
std::vector<std::string> CudaLibraryFolders();

// Loads the library of that name (libcublasLt.so.13) from the first of `folders` where it can be, and where `lacks`, if
// it is given, says with nothing that the library will do. It stays loaded; the handle is dlopen's. kUnavailable:
// nowhere; the message tells the places, and why one that is there cannot be loaded or what it lacks.
Expected<void*> LoadCudaLibrary(const std::string& name, const std::vector<std::string>& folders,
                                const std::function<std::string(void* library)>& lacks = {});

}  // namespace tarn::kernels
