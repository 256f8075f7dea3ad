// The sum of what the threads of a block have, in one shape.
#pragma once

#include "kernels/cuda/grid.cuh"

namespace tarn::kernels::cuda {

// Halves are added to halves. Called by all of a block of kThreads threads, once for a type; all get it.
template <unsigned kThreads = kBlock, typename T>
__device__ T SumOfBlock(T value) {
  __shared__ T values[kThreads];
  values[threadIdx.x] = value;
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  __syncthreads();
  return values[0];
}

}  // namespace tarn::kernels::cuda
