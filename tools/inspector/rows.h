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
  std::string table;         // empty: the checkpoint's only table
  std::vector<Key> keys;     // kKeys
  std::uint32_t count = 10;  // the other kinds: maximum number of rows
  bool slots = false;        // show the optimizer's state too
  bool json = false;
};

// Returns the requested rows as text. First verifies every file that may contain them: all files, or for keys the files
// of their partitions. Reports keys that have no row. The largest rows are those with NaN, then the others by norm.
// kInvalidArgument: the oldest rows of a table that does not store push times, or a key beyond the rows of a dense
// table.
Expected<std::string> AnswerRows(const std::string& path, const RowsQuestion& question);

}  // namespace tarn::inspector
