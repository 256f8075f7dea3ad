// Groups the items of a batch by a small number, such as the partition or the shard of each item.
//
//   GroupByPartition(partition_of, 64, permutation.data(), offsets.data());
//   for (uint32_t i = offsets[p]; i < offsets[p + 1]; ++i) use(items[permutation[i]]);   // items of p, in order
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tarn::kernels {

class SortScratch;  // kernels/sort_scratch.h
class Stream;       // kernels/stream.h

// A stable counting sort: permutation[offsets[p] ... offsets[p + 1]) are the indices of the items with
// partition_of[i] == p, ascending. permutation has room for partition_of.size() (below 2^32), offsets for
// n_partitions + 1; all of both is written. Every partition_of[i] < n_partitions. Allocates nothing. Any thread.
void GroupByPartition(std::span<const std::uint32_t> partition_of, std::uint32_t n_partitions,
                      std::uint32_t* permutation, std::uint32_t* offsets);

// On a GPU, of n items, within the scratch; by a radix sort. The same result.
void GroupByPartition(Stream& stream, std::size_t n, const std::uint32_t* partition_of, std::uint32_t n_partitions,
                      std::uint32_t* permutation, std::uint32_t* offsets, SortScratch& scratch);

}  // namespace tarn::kernels
