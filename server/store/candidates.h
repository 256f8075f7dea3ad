// Counts the pushes of keys of one partition that have no row yet (LifeSpec::admit_count). Counts are exact for up to
// keys_max keys. When there are more, at least half of them, those with the lowest counts, are dropped; which ones
// depends only on the keys and their counts. Dropping, and All, take a few milliseconds at
// limits::kCandidatesPartitionMax, the upper bound of keys_max. Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/limits.h"
#include "server/store/row_index.h"
#include "server/store/snapshot.h"

namespace tarn::server {

class Candidates {
 public:
  // `salt` and `partition_bits` as of RowIndex; keys_max at least 1.
  Candidates(std::uint64_t salt, std::uint32_t partition_bits, std::size_t keys_max)
      : counts_(std::in_place, salt, partition_bits),
        keys_max_(std::min<std::size_t>(keys_max, limits::kCandidatesPartitionMax)) {}

  // Pushes of the key so far; 0 also if its count was dropped.
  std::uint32_t Count(Key key) const;
  // Sets the count of a key. A new key at the limit drops others.
  void Set(Key key, std::uint32_t count);
  void Erase(Key key) { counts_->Erase(counts_->Hash(key), key); }

  // Each key with its count, in no particular order.
  std::vector<Seen> All() const;
  std::size_t size() const { return counts_->size(); }
  std::size_t memory_bytes() const { return counts_->memory_bytes(); }

 private:
  void DropLowest();

  std::optional<RowIndex> counts_;  // always set
  std::size_t keys_max_;
};

}  // namespace tarn::server
