// Use counts of rows in four bits each, for eviction by least frequent use with aging. Rows on disk keep their counts,
// so a row that is read regularly survives a scan. Counts are exact up to kExactUses and then increase with probability
// 1/2, 1/4, ..., so the highest represents about a thousand uses or more. bench/eviction_policies compares this with
// CLOCK, S3-FIFO and the optimum.
//
// Morris, "Counting large numbers of events in small registers" (1978); aging as in Einziger, Friedman and Manes,
// "TinyLFU" (2017).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/hash.h"

namespace tarn::server {

inline constexpr std::uint32_t kUseCountMax = 15;
inline constexpr std::uint32_t kExactUses = 6;
// Each row's count is aged once per this many uses per row in memory.
inline constexpr std::uint64_t kUsesPerAging = 32;
// The least used of this many rows is evicted.
inline constexpr std::size_t kVictimWindow = 16;

// The count after one more use. Without branches, which would depend on the count and be mispredicted.
inline std::uint32_t AfterUse(std::uint32_t count, SplitMix& random) {
  const std::uint32_t bits = std::max(count, kExactUses - 1) - (kExactUses - 1);  // random bits that must all be 0
  const bool counts = (random.Next() & ((std::uint64_t{1} << bits) - 1)) == 0;
  return count + (counts & (count != kUseCountMax) ? 1 : 0);
}

// The count for half as many uses.
inline std::uint32_t AfterAging(std::uint32_t count, SplitMix& random) {
  if (count > kExactUses) return count - 1;
  return count - (count + static_cast<std::uint32_t>(random.Next() >> 63)) / 2;
}

// The number of counts to age now, of `rows` counts, after `uses` more uses of `resident` rows.
class Aging {
 public:
  std::uint64_t Due(std::uint64_t uses, std::uint64_t rows, std::uint64_t resident) {
    const std::uint64_t per_row = kUsesPerAging * std::max<std::uint64_t>(resident, 1);
    credit_ += uses * rows;
    const std::uint64_t due = credit_ / per_row;
    credit_ %= per_row;
    return std::min(due, rows);
  }

 private:
  std::uint64_t credit_ = 0;
};

// Keeps the `wanted` items with the lowest counts, in no particular order. counts[i] belongs to items[i].
inline void KeepLeastUsed(std::vector<std::uint32_t>* items, std::span<const std::uint8_t> counts, std::size_t wanted) {
  if (items->size() <= wanted) return;
  std::array<std::size_t, kUseCountMax + 1> of_count{};
  for (std::uint8_t count : counts) ++of_count[count];
  std::uint8_t highest = 0;
  std::size_t below = 0;  // items with counts below `highest`, the highest count that is kept
  while (below + of_count[highest] < wanted) below += of_count[highest++];
  std::size_t of_highest = wanted - below, kept = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > highest || (counts[i] == highest && of_highest == 0)) continue;
    if (counts[i] == highest) --of_highest;
    (*items)[kept++] = (*items)[i];
  }
  items->resize(kept);
}

}  // namespace tarn::server
