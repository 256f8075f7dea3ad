// The keys of a dense table that belong to one partition: consecutive keys modulo the number of rows, because the
// table's salt rotates the positions (core/position.h). Plain values.
#pragma once

#include <cstdint>

#include "core/types.h"

namespace tarn::server {

struct DenseRange {
  Key first = 0;            // first key of the run
  std::uint64_t count = 0;  // keys first, first + 1, ..., modulo rows
  std::uint64_t rows = 1;   // of the table

  // Index of `key` in the run; >= count if the run does not contain it. key < rows.
  std::uint64_t IndexOf(Key key) const { return key >= first ? key - first : key + (rows - first); }
  // The key at an index.
  Key KeyAt(std::uint64_t index) const { return index < rows - first ? first + index : index - (rows - first); }
};

// The keys of partition `partition` of 2^bits, for a table of `rows` (at least 1) with this salt.
inline DenseRange DenseRangeOf(std::uint64_t rows, std::uint64_t salt, std::uint32_t bits, PartitionId partition) {
  if (bits == 0) return {0, rows, rows};
  // The lowest key whose unsalted position is at least `place`; `rows` if there is none.
  auto key_from = [rows](Position place) {
    const auto product = static_cast<unsigned __int128>(place) * rows;
    return static_cast<Key>(product >> 64) + (static_cast<std::uint64_t>(product) != 0 ? 1 : 0);
  };
  const Position low = (Position{partition.value} << (64 - bits)) - salt;
  const Position high = low + (Position{1} << (64 - bits));
  const Key from = key_from(low);
  const Key to = key_from(high);
  if (high > low) return {from, to - from, rows};
  return {from == rows ? 0 : from, (rows - from) + to, rows};
}

}  // namespace tarn::server
