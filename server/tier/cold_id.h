// How a row on disk is identified: by its record's id, and by its owner.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tarn::server {

// A record of one table in the cold log.
using ColdId = std::uint32_t;
// Maximum number of ids of one table: of its rows on a shard's disk, and of holes that are not collected yet.
inline constexpr ColdId kColdIds = 1u << 27;

// The owner of a row: the place of its partition (a number that the store gives each partition that it owns) and the
// row's number there.
struct RowOwner {
  std::uint32_t place = 0;
  std::uint32_t number = 0;
  friend bool operator==(const RowOwner&, const RowOwner&) = default;
};
inline constexpr std::size_t kOwnerWords = 2;

}  // namespace tarn::server
