// A whole cut of a row store at once: what tests look at when they want all rows.
#pragma once

#include <vector>

#include "server/store/store.h"

namespace tarn::server {

// Chunks of a cut put together: by table and partition.
inline void Collect(std::vector<CutRows> chunks, std::vector<TableRows>* tables) {
  for (CutRows& chunk : chunks) {
    for (TableRows& table : *tables) {
      if (table.spec.id != chunk.table) continue;
      if (table.partitions.empty() || table.partitions.back().partition != chunk.rows.partition)
        table.partitions.push_back({.partition = chunk.rows.partition});
      PartitionRows& to = table.partitions.back();
      to.keys.insert(to.keys.end(), chunk.rows.keys.begin(), chunk.rows.keys.end());
      to.rows.insert(to.rows.end(), chunk.rows.rows.begin(), chunk.rows.rows.end());
      to.removed.insert(to.removed.end(), chunk.rows.removed.begin(), chunk.rows.removed.end());
      to.seen.insert(to.seen.end(), chunk.rows.seen.begin(), chunk.rows.seen.end());
    }
  }
}

inline std::vector<TableRows> CutAll(Store* rows, std::size_t slice_bytes = 1 << 20, CutRequest request = {}) {
  std::vector<TableRows> tables = rows->BeginCut(request);
  std::vector<CutRows> chunks;
  while (!rows->ContinueCut(slice_bytes, &chunks)) {
  }
  Collect(std::move(chunks), &tables);
  return tables;
}

}  // namespace tarn::server
