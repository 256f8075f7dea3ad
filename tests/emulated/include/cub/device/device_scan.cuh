#pragma once
#include <cub/device/device_radix_sort.cuh>

namespace cub {
struct DeviceScan {
  template <typename I, typename T, typename N>
  static cudaError_t InclusiveSum(void* temp, std::size_t& bytes, I in, T* out, N n, cudaStream_t stream = nullptr) {
    return emulated_algorithms::Run("cub::DeviceScan", temp, bytes, std::size_t(n), stream, [=] {
      ::emulated::CheckDevice(out, std::size_t(n) * sizeof(T), true, "cub::DeviceScan");
      T sum = 0;
      for (N i = 0; i < n; ++i) out[i] = sum += in[i];
    });
  }
};
}  // namespace cub
