// For tests that compare all rows: makes a whole cut of a row store in one call.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "server/store/store.h"

namespace tarn::server {

// Merges the chunks of a cut by table and partition.
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
      if (chunk.rows.state) to.state = std::move(chunk.rows.state);
    }
  }
}

// Continues the cut. Returns whether it is complete.
inline bool ContinueCut(Store* rows, std::size_t bytes, std::vector<CutRows>* chunks) {
  const Status status = rows->cut().Continue(bytes, chunks);
  EXPECT_TRUE(status) << status.error().message;
  return !status || !rows->cut().active();
}

inline std::vector<TableRows> CutAll(Store* rows, std::size_t slice_bytes = 1 << 20, CutRequest request = {}) {
  std::vector<TableRows> tables = rows->cut().Begin(request);
  std::vector<CutRows> chunks;
  while (!ContinueCut(rows, slice_bytes, &chunks)) {
  }
  Collect(std::move(chunks), &tables);
  return tables;
}

}  // namespace tarn::server
