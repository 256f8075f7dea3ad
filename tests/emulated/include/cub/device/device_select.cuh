#pragma once
#include <cub/device/device_radix_sort.cuh>

namespace cub {
struct DeviceSelect {
  template <typename I, typename T, typename C, typename N, typename P>
  static cudaError_t If(void* temp, std::size_t& bytes, I in, T* out, C* count, N n, P wanted,
                        cudaStream_t stream = nullptr) {
    return emulated_algorithms::Run("cub::DeviceSelect", temp, bytes, std::size_t(n), stream, [=] {
      C found = 0;
      for (N i = 0; i < n; ++i)
        if (wanted(in[i])) {
          ::emulated::CheckDevice(out + found, sizeof(T), true, "cub::DeviceSelect");
          out[found++] = in[i];
        }
      ::emulated::CheckDevice(count, sizeof(C), true, "cub::DeviceSelect");
      *count = found;
    });
  }
};
}  // namespace cub
