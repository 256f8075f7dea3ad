// Takes expired rows away, in slices between messages: goes round the fragments that have a sweep due. Not thread-safe.
#pragma once

#include <cstddef>

#include "server/store/row_index.h"
#include "server/store/store_maps.h"

namespace tarn::server {

class Sweeper {
 public:
  // Looks at about `rows` rows. `due` is how many fragments have a sweep due, and falls as they are done.
  void Continue(std::size_t rows, const Tables& tables, const Partitions& partitions, const std::size_t& due);
  // Partitions were added or dropped: begins anew where it was.
  void Restart() { walk_ = {}; }

 private:
  SparseFragment* Next(const Tables& tables, const Partitions& partitions);

  std::size_t table_ = 0, partition_ = 0;
  RowIndex::Walk walk_;  // in their fragment
};

}  // namespace tarn::server
