// Launches for kernels/hot_rows.h on a GPU, with the conventions of kernels/cuda/launch.h; the table's pointers are
// device memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "kernels/hot_rows_layout.h"

namespace tarn::kernels::cuda {

// Working memory of a cache's calls: 32-bit words for a batch of keys_max keys, and CUB's memory.
struct HotScratch {
  std::uint32_t keys_max = 0;
  std::uint32_t* buckets = nullptr;           // of each key, in order of the batch; Table::buckets if it has a slot
  std::uint32_t* sorted_buckets = nullptr;    // ascending
  std::uint32_t* positions = nullptr;         // of the keys in the batch: 0, 1, 2, ...
  std::uint32_t* sorted_positions = nullptr;  // in the order of sorted_buckets
  void* cub = nullptr;
  std::size_t cub_bytes = 0;
};

// Bytes that CUB needs for batches of keys_max keys on a table with that many buckets.
cudaError_t HotCubBytes(std::uint32_t keys_max, std::uint32_t buckets, std::size_t* bytes);

cudaError_t HotFind(cudaStream_t stream, const hot::Table& table, const HotScratch& scratch, std::size_t n,
                    const std::uint64_t* keys, std::uint64_t least, std::uint32_t now, std::uint32_t* slots,
                    std::uint32_t* missing, std::uint32_t* missing_count);
cudaError_t HotInsert(cudaStream_t stream, const hot::Table& table, const HotScratch& scratch, std::size_t n,
                      const std::uint64_t* keys, std::uint64_t least, std::uint32_t now, std::uint32_t* slots);
cudaError_t HotFill(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint32_t* positions,
                    const std::uint32_t* slots, const float* rows, std::uint64_t version);
cudaError_t HotRead(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint32_t* slots,
                    float* out);
cudaError_t HotOldest(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint32_t* slots,
                      std::uint64_t* oldest);
cudaError_t HotUnpin(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint32_t* slots);
cudaError_t HotEvict(cudaStream_t stream, const hot::Table& table, std::size_t n, const std::uint64_t* keys);
cudaError_t HotAge(cudaStream_t stream, const hot::Table& table);

}  // namespace tarn::kernels::cuda
