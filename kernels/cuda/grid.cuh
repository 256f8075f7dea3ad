// The grids of kernels: threads that stride over items, and warps that stride over rows. C++17, for nvcc.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/blocks.h"

namespace tarn::kernels::cuda {

inline constexpr unsigned kBlock = 256;
inline constexpr unsigned kWarp = 32;
inline unsigned BlocksFor(std::size_t threads) {
  return static_cast<unsigned>(std::clamp<std::size_t>((threads + kBlock - 1) / kBlock, 1, BlocksMax()));
}

__device__ inline std::size_t FirstThread() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline std::size_t Threads() { return std::size_t{gridDim.x} * blockDim.x; }
__device__ inline std::size_t FirstWarp() { return FirstThread() / kWarp; }
__device__ inline std::size_t Warps() { return Threads() / kWarp; }
__device__ inline unsigned Lane() { return threadIdx.x % kWarp; }

template <typename F>
__global__ void ForEachKernel(std::size_t n, F f) {
  for (std::size_t i = FirstThread(); i < n; i += Threads()) f(i);
}

// Calls f(i) for i in [0, n), each on one thread.
template <typename F>
cudaError_t ForEach(cudaStream_t stream, std::size_t n, F f) {
  if (n == 0) return cudaSuccess;
  ForEachKernel<<<BlocksFor(n), kBlock, 0, stream>>>(n, f);
  return cudaGetLastError();
}

template <typename F>
__global__ void ForEachRowKernel(std::size_t rows, F f) {
  for (std::size_t row = FirstWarp(); row < rows; row += Warps()) f(row, Lane());
}

// Calls f(row, lane) for every row, on the 32 threads of a warp.
template <typename F>
cudaError_t ForEachRow(cudaStream_t stream, std::size_t rows, F f) {
  if (rows == 0) return cudaSuccess;
  ForEachRowKernel<<<BlocksFor(rows * kWarp), kBlock, 0, stream>>>(rows, f);
  return cudaGetLastError();
}

// Whether 16 bytes can be loaded at a time.
inline bool IsAligned16(const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; }

}  // namespace tarn::kernels::cuda
