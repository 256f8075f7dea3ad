// Measures the machine's limits without tarn's kernels: copies within memory, and matrix products with the fastest
// algorithm of the vendor's library.
#pragma once

#include <cstddef>
#include <memory>

#include "bench/gpu_bench/place.h"

namespace tarn::bench {

// C (m x n) = op(A) op(B), k the extent that is summed over; row-major and packed. A and B in bf16, C in bf16 or fp32.
struct ProductShape {
  std::size_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
  bool wide_c = false;  // fp32
};

class Limits {
 public:
  virtual ~Limits() = default;
  // Bytes read and written per second by a copy of `bytes`.
  virtual double CopyBytesPerSecond(std::size_t bytes) = 0;
  virtual double ProductSeconds(const ProductShape& shape) = 0;
  // Bytes per second of a copy between host and device memory. Not pinned: the driver copies through its own pinned
  // memory.
  virtual double HostCopyBytesPerSecond(std::size_t bytes, bool to_host, bool pinned) = 0;
};

// Of this thread: memcpy, and kernels/gemm.h in fp32.
std::unique_ptr<Limits> MakeHostLimits(const Timing& timing);
// Limits of the GPU of this thread, measured with CUDA and cuBLASLt on a separate stream. Only in builds with CUDA.
std::unique_ptr<Limits> MakeGpuLimits(const Timing& timing);

}  // namespace tarn::bench
