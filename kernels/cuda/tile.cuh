// Tiles: eight neighbouring threads that sum in the order of kernels/elementwise.h; lane k has partial sum k.
#pragma once

#include "kernels/cuda/grid.cuh"

namespace tarn::kernels::cuda {

inline constexpr unsigned kTile = 8;

__device__ inline std::size_t FirstTile() { return FirstThread() / kTile; }
__device__ inline std::size_t Tiles() { return Threads() / kTile; }
__device__ inline unsigned TileLane() { return threadIdx.x % kTile; }
__device__ inline unsigned TileMask() { return 0xffu << (Lane() - TileLane()); }

// The sum of the partial sums, ((s0+s4)+(s2+s6)) + ((s1+s5)+(s3+s7)). Called by all threads of a tile; all get it.
__device__ inline double SumOfTile(double partial) {
  const unsigned mask = TileMask();
  partial += __shfl_xor_sync(mask, partial, 4);
  partial += __shfl_xor_sync(mask, partial, 2);
  return partial + __shfl_xor_sync(mask, partial, 1);
}

template <typename F>
__global__ void ForEachTileKernel(std::size_t n, F f) {
  for (std::size_t i = FirstTile(); i < n; i += Tiles()) f(i, TileLane());
}

// Calls f(i, lane) for i in [0, n), on the threads of one tile.
template <typename F>
cudaError_t ForEachTile(cudaStream_t stream, std::size_t n, F f) {
  if (n == 0) return cudaSuccess;
  ForEachTileKernel<<<BlocksFor(n * kTile), kBlock, 0, stream>>>(n, f);
  return cudaGetLastError();
}

}  // namespace tarn::kernels::cuda
