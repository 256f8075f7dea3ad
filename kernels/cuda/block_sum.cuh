// Sums one value per thread of a block, in a fixed order.
#pragma once

#include "kernels/cuda/grid.cuh"

namespace tarn::kernels::cuda {

// Adds the upper half to the lower half, repeatedly. Called by all kThreads threads of a block; all get the sum. A
// kernel may call it once per type, because calls of one type share an array.
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
