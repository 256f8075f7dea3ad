// Measures the machine's limits: copies within memory and between host and device, and matrix products. On a GPU
// without tarn's kernels, by CUDA and the fastest of cuBLASLt's algorithms.
#pragma once

#include <cstddef>
#include <memory>

#include "bench/gpu_bench/place.h"

namespace tarn::bench {

// C (m x n) = op(A) op(B), summed over k; row-major and packed. On a GPU A and B are bf16, and C is bf16 or fp32; on a
// CPU all are fp32.
struct ProductShape {
  std::size_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  bool wide_c = false;  // C is fp32 on a GPU
};

class Limits {
 public:
  virtual ~Limits() = default;
  // Bytes per second of a copy of `bytes` within memory; bytes read and bytes written both count.
  virtual double CopyBytesPerSecond(std::size_t bytes) = 0;
  virtual double ProductSeconds(const ProductShape& shape) = 0;
  // Bytes per second of a copy between host and device memory. Not pinned: the driver copies through its own pinned
  // memory.
  virtual double HostCopyBytesPerSecond(std::size_t bytes, bool to_host, bool pinned) = 0;
};

// Limits of this thread: memcpy, and kernels/gemm.h.
std::unique_ptr<Limits> MakeHostLimits(const Timing& timing);
// Limits of the GPU of this thread, measured with CUDA and cuBLASLt on a separate stream. Only in builds with CUDA.
std::unique_ptr<Limits> MakeGpuLimits(const Timing& timing);

}  // namespace tarn::bench
