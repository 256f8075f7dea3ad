// CUB's algorithms as documented: they compute the results, and check the temporary memory that they require.
#pragma once
#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/emulated/kernel.h"

namespace cub {
namespace emulated_algorithms {

// Without `temp`, returns the size that the algorithm needs. Otherwise checks it and runs `work` on the stream.
template <typename Work>
cudaError_t Run(const char* name, void* temp, std::size_t& bytes, std::size_t items, cudaStream_t stream, Work work) {
  const std::size_t needed = 512 + 16 * items;
  if (temp == nullptr) {
    bytes = needed;
    return cudaSuccess;
  }
  if (bytes < needed) return cudaErrorInvalidValue;
  return ::emulated::Enqueue(name, stream, [=] {
    ::emulated::CheckDevice(temp, needed, true, name);
    work();
  });
}

template <typename K>
auto OrderOf(const K* keys, std::size_t n, int begin, int end, bool descending) {
  const auto digits = [=](std::uint32_t i) {
    const auto bits = static_cast<std::uint64_t>(keys[i]) >> begin;
    return end - begin >= 64 ? bits : bits & ((std::uint64_t{1} << (end - begin)) - 1);
  };
  std::vector<std::uint32_t> order(n);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return descending ? digits(b) < digits(a) : digits(a) < digits(b);
  });
  return order;
}

template <typename K, typename V>
cudaError_t Sort(void* temp, std::size_t& bytes, const K* keys_in, K* keys_out, const V* values_in, V* values_out,
                 std::size_t n, int begin, int end, cudaStream_t stream, bool descending) {
  return Run("cub::DeviceRadixSort", temp, bytes, n, stream, [=] {
    ::emulated::CheckDevice(keys_in, n * sizeof(K), false, "cub::DeviceRadixSort");
    ::emulated::CheckDevice(keys_out, n * sizeof(K), true, "cub::DeviceRadixSort");
    if (keys_in < keys_out + n && keys_out < keys_in + n) ::emulated::Violation("a sort's arrays overlap");
    const std::vector<std::uint32_t> order = OrderOf(keys_in, n, begin, end, descending);
    for (std::size_t i = 0; i < n; ++i) keys_out[i] = keys_in[order[i]];
    if (values_in == nullptr) return;
    ::emulated::CheckDevice(values_in, n * sizeof(V), false, "cub::DeviceRadixSort");
    ::emulated::CheckDevice(values_out, n * sizeof(V), true, "cub::DeviceRadixSort");
    for (std::size_t i = 0; i < n; ++i) values_out[i] = values_in[order[i]];
  });
}

}  // namespace emulated_algorithms

struct DeviceRadixSort {
  template <typename K, typename V, typename N>
  static cudaError_t SortPairs(void* temp, std::size_t& bytes, const K* keys_in, K* keys_out, const V* values_in,
                               V* values_out, N n, int begin = 0, int end = sizeof(K) * 8,
                               cudaStream_t stream = nullptr) {
    return emulated_algorithms::Sort(temp, bytes, keys_in, keys_out, values_in, values_out, std::size_t(n), begin, end,
                                     stream, false);
  }
  template <typename K, typename V, typename N>
  static cudaError_t SortPairsDescending(void* temp, std::size_t& bytes, const K* keys_in, K* keys_out,
                                         const V* values_in, V* values_out, N n, int begin = 0, int end = sizeof(K) * 8,
                                         cudaStream_t stream = nullptr) {
    return emulated_algorithms::Sort(temp, bytes, keys_in, keys_out, values_in, values_out, std::size_t(n), begin, end,
                                     stream, true);
  }
  template <typename K, typename N>
  static cudaError_t SortKeys(void* temp, std::size_t& bytes, const K* keys_in, K* keys_out, N n, int begin = 0,
                              int end = sizeof(K) * 8, cudaStream_t stream = nullptr) {
    return emulated_algorithms::Sort<K, K>(temp, bytes, keys_in, keys_out, nullptr, nullptr, std::size_t(n), begin, end,
                                           stream, false);
  }
};

}  // namespace cub
