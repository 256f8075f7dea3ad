// Copies of a shard's rows at the cut of a checkpoint, and the hash by which states are compared. Plain values: they
// are handed to the thread that writes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/table_spec.h"
#include "core/types.h"

namespace tarn::server {

// Rows of one partition: row i has keys[i] and floats rows[i * row_floats ...): dim values, then the slots.
struct PartitionRows {
  PartitionId partition;
  std::vector<Key> keys;
  std::vector<float> rows;
};

// A chunk of a cut (RowStore::ContinueCut): some rows of one partition.
struct CutRows {
  TableId table;
  PartitionRows rows;
};

struct TableRows {
  TableSpec spec;
  std::uint64_t salt = 0;        // TableSalt of the job and table
  std::uint32_t row_floats = 0;  // dim + slots
  std::vector<PartitionRows> partitions;
};

struct Snapshot {
  CheckpointId id;
  ShardId shard;
  std::uint32_t partition_bits = 0;
  Clock max_clock;  // highest clock of any worker at the cut
  std::vector<TableRows> tables;
};

// Hash of one row with all its bits; `table_salt` tells tables apart.
std::uint64_t RowHash(std::uint64_t table_salt, Key key, std::span<const float> row);

// Sum of RowHash over all rows: independent of their order and of how they are spread over shards.
std::uint64_t StateHash(const std::vector<TableRows>& tables);

// The same of some rows of one table.
std::uint64_t StateHash(std::uint64_t table_salt, std::uint32_t row_floats, const PartitionRows& rows);

std::uint64_t RowCount(const std::vector<TableRows>& tables);
// Bytes of keys and rows.
std::uint64_t ByteCount(const std::vector<TableRows>& tables);

}  // namespace tarn::server
