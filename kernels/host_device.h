// TARN_HOST_DEVICE: before a function that the CPU's code and CUDA kernels share. Such functions are C++17.
#pragma once

#ifdef __CUDACC__
#define TARN_HOST_DEVICE __host__ __device__
#else
#define TARN_HOST_DEVICE
#endif
