// The record of a row outside of its shard's memory (in cuts, checkpoints and the tier): a sequence of 32-bit words,
//
//   [values][slots][life]
//
// values: the `dim` values in the table's row_codec (16-bit values two per word, the first in the lower half; zero bits
// fill the last word); slots: the floats of the optimizer's state; life, if the table has one: the clock (or second) of
// the last push as an unsigned word, and the score, a float. Words are copied with memcpy, so the bits of NaNs are
// preserved.
#pragma once

#include <cstdint>

#include "core/table/table_spec.h"

namespace tarn {

struct RowLayout {
  std::uint32_t value_words = 0;
  std::uint32_t slot_words = 0;
  std::uint32_t life_words = 0;
  constexpr std::uint32_t words() const { return value_words + slot_words + life_words; }
};

inline RowLayout LayoutOf(const TableSpec& spec) {
  return {.value_words = spec.row_codec == ValueCodec::kFp32 ? spec.dim : (spec.dim + 1) / 2,
          .slot_words = SlotFloats(spec.optimizer.kind, spec.dim),
          .life_words = spec.life.on ? 2u : 0u};
}

// Words of a record of this table.
inline std::uint32_t RowWords(const TableSpec& spec) { return LayoutOf(spec).words(); }

}  // namespace tarn
