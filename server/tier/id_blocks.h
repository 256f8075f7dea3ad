// The ids of one table's rows on disk, in blocks of a power of two. A segment takes a run of blocks, so that the ids of
// its rows follow one another. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "server/tier/cold_id.h"

namespace tarn::server {

class IdBlocks {
 public:
  static constexpr std::uint32_t kNone = 0xffffffff;
  struct Run {
    std::size_t first = 0, count = 0;  // blocks
  };

  // Blocks of 2^block_log2 ids. A full segment has `wanted` blocks. Ids are below ids_max.
  IdBlocks(std::uint32_t block_log2, std::size_t wanted, ColdId ids_max)
      : block_log2_(block_log2), wanted_(wanted), blocks_max_(ids_max >> block_log2) {}

  // Assigns a run of free blocks to the segment `owner`: as many as wanted or, if no run is that long, the longest.
  // Run.count is 0 if all ids are used.
  Run Take(std::uint32_t owner);
  // Frees the blocks first .. end - 1.
  void Give(std::size_t first, std::size_t end);

  std::uint32_t OwnerOf(ColdId id) const { return owners_[id >> block_log2_]; }
  std::uint32_t OwnerOfBlock(std::size_t block) const { return owners_[block]; }
  ColdId FirstId(std::size_t block) const { return static_cast<ColdId>(block << block_log2_); }
  // Number of blocks that `ids` ids need.
  std::uint32_t BlocksFor(std::uint32_t ids) const { return (ids + (1u << block_log2_) - 1) >> block_log2_; }
  std::uint64_t used_ids() const { return std::uint64_t{owners_.size() - free_} << block_log2_; }
  std::size_t memory_bytes() const { return owners_.capacity() * sizeof(owners_[0]); }

 private:
  Run Find() const;
  Run NextFree(std::size_t from, std::size_t to) const;

  std::uint32_t block_log2_;
  std::size_t wanted_, blocks_max_;
  std::vector<std::uint32_t> owners_;  // by block; kNone: free
  std::size_t free_ = 0;
  std::size_t next_ = 0;  // block from which free blocks are searched first
};

}  // namespace tarn::server
