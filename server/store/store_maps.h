// The tables and partitions of a store, by id; null: the store does not have it.
#pragma once

#include <memory>
#include <vector>

#include "server/store/partition.h"
#include "server/store/table.h"

namespace tarn::server {

using Tables = std::vector<std::unique_ptr<Table>>;
using Partitions = std::vector<std::unique_ptr<Partition>>;

// Calls visit(fragment) for each fragment of a sparse table, in order of partition.
template <typename Visit>
void ForEachSparse(const Partitions& partitions, const Table& table, Visit visit) {
  for (const auto& partition : partitions)
    if (SparseFragment* fragment = partition ? partition->FindSparse(table.id()) : nullptr) visit(*fragment);
}

}  // namespace tarn::server
