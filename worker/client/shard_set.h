// A set of shards that a step of the client visits: a few of those of a large fleet. Internal to worker/; not
// thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/types.h"

namespace tarn::worker {

class ShardSet {
 public:
  void Add(ShardId shard) {
    if (shard.value >= contains_.size()) contains_.resize(shard.value + 1);
    if (contains_[shard.value]) return;
    contains_[shard.value] = true;
    sorted_ = sorted_ && (shards_.empty() || shards_.back() < shard);
    shards_.push_back(shard);
  }
  // Calls stays(shard) for each shard, in ascending order, and removes those for which it returns false. It must not
  // change the set.
  template <typename Stays>
  void Visit(const Stays& stays) {
    if (!sorted_) std::ranges::sort(shards_);
    sorted_ = true;
    std::size_t kept = 0;
    for (const ShardId shard : shards_)
      if (stays(shard))
        shards_[kept++] = shard;
      else
        contains_[shard.value] = false;
    shards_.resize(kept);
  }
  void Clear() { *this = {}; }

 private:
  std::vector<ShardId> shards_;
  std::vector<bool> contains_;  // by shard
  bool sorted_ = true;
};

}  // namespace tarn::worker
