// `tarn-inspect rows`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/types.h"

namespace tarn::inspector {

struct RowsQuestion {
  enum class Which { kFirst, kKeys, kLargest, kOldest } which = Which::kFirst;
  std::string table;         // empty: the only one there is
  std::vector<Key> keys;     // kKeys
  std::uint32_t count = 10;  // the others: so many
  bool slots = false;        // show the optimizer's state too
  bool json = false;
};

// The rows asked for. Every file that they may be from is verified before: all, or for keys those of their partitions.
// Of a key without a row it says so; the largest rows are those with NaN, then by norm. kInvalidArgument for the oldest
// of a table that does not keep when its rows were pushed, and for a key that a dense table has not.
Expected<std::string> AnswerRows(const std::string& path, const RowsQuestion& question);

}  // namespace tarn::inspector
