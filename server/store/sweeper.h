// Removes expired rows in slices between messages, from each fragment in turn that has a sweep due. Not thread-safe.
#pragma once

#include <cstddef>

#include "server/store/row_index.h"
#include "server/store/store_maps.h"

namespace tarn::server {

class Sweeper {
 public:
  // Examines about `rows` rows. `due`: the number of fragments with a sweep due, which decreases as they are done.
  void Continue(std::size_t rows, const Tables& tables, const Partitions& partitions, const std::size_t& due);
  // Must be called after a partition was dropped: restarts the current fragment.
  void Restart() { walk_ = {}; }

 private:
  SparseFragment* Next(const Tables& tables, const Partitions& partitions);

  std::size_t table_ = 0, partition_ = 0;
  RowIndex::Walk walk_;  // in the current fragment
};

}  // namespace tarn::server
