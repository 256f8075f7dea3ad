#include "kernels/partition.h"

#include <algorithm>

namespace tarn::kernels {

// offsets[p + 1] is the cursor of partition p. It moves from the first index of the partition to one past its last,
// which is the value that the caller gets.
void GroupByPartition(std::span<const std::uint32_t> partition_of, std::uint32_t n_partitions,
                      std::uint32_t* permutation, std::uint32_t* offsets) {
  std::fill(offsets, offsets + n_partitions + 1, 0u);
  for (const std::uint32_t p : partition_of) ++offsets[p + 1];
  std::uint32_t begin = 0;
  for (std::uint32_t p = 0; p < n_partitions; ++p) {
    const std::uint32_t count = offsets[p + 1];
    offsets[p + 1] = begin;
    begin += count;
  }
  for (std::uint32_t i = 0; i < partition_of.size(); ++i) permutation[offsets[partition_of[i] + 1]++] = i;
}

}  // namespace tarn::kernels
