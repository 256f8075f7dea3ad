// Copies of a shard's rows at the cut of a checkpoint, and the hash that compares states. Plain values, passed to the
// thread that writes them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/table/table_spec.h"
#include "core/types.h"

namespace tarn::server {

// A key without a row, and the number of its pushes (LifeSpec::admit_count).
using Seen = std::pair<Key, std::uint32_t>;

// The state of a fragment besides its rows.
struct FragmentState {
  Version version;                   // number of sections applied
  std::vector<std::uint32_t> words;  // of the rule: the bits of UpdateRule::partition_floats
  friend bool operator==(const FragmentState&, const FragmentState&) = default;
};

// Rows of one partition: row i has keys[i] and the record rows[i * row_words ...) (core/row_layout.h).
struct PartitionRows {
  PartitionId partition;
  std::vector<Key> keys;
  std::vector<std::uint32_t> rows;
  std::vector<Key> removed;                 // keys without a row that the base may contain; none is in `keys`
  std::vector<Seen> seen;                   // of the whole partition, for every scope: replaces the list in the base
  std::optional<FragmentState> state = {};  // for every scope, in one chunk of a cut; none: nothing was applied
};

// Contents of a cut: all rows, or those changed since its base and the keys removed since.
enum class CutScope : std::uint8_t { kAll, kChanged };

// A chunk of a cut (StoreCut::Continue): some rows of one partition.
struct CutRows {
  TableId table;
  PartitionRows rows;
};

struct TableRows {
  TableSpec spec;
  std::uint64_t salt = 0;        // TableSalt of the job and table
  std::uint32_t row_words = 0;   // RowWords of the spec
  std::uint64_t state_rows = 0;  // number of rows in the store at the cut, for every scope
  std::vector<PartitionRows> partitions;
};

struct Snapshot {
  CheckpointId id;
  ShardId shard;
  std::uint32_t partition_bits = 0;
  Clock max_clock;  // highest clock of any worker at the cut
  std::vector<TableRows> tables;
  // Base 0: the snapshot has all rows. Otherwise it has the rows changed since `base`, and the files of that checkpoint
  // are linked into the directory too: each of `shards` shards links its share (rule K7).
  CheckpointId base;
  std::string base_directory;
  std::uint32_t shards = 1;
};

// Hash of all bits of one row. `table_salt` differs between tables.
std::uint64_t RowHash(std::uint64_t table_salt, Key key, std::span<const std::uint32_t> row);

// Hash of a key that is counted but has no row.
std::uint64_t SeenHash(std::uint64_t table_salt, const Seen& seen);

// Hash of the rule's state of a partition; 0 if all words are 0. Does not include the version.
std::uint64_t FragmentHash(std::uint64_t table_salt, PartitionId partition, std::span<const std::uint32_t> words);

// Sum of RowHash over all rows, of SeenHash over all keys seen, and of FragmentHash over all partitions. Independent of
// their order and of their distribution over shards.
std::uint64_t StateHash(const std::vector<TableRows>& tables);

// The same for some rows of one table.
std::uint64_t StateHash(std::uint64_t table_salt, std::uint32_t row_words, const PartitionRows& rows);

std::uint64_t RowCount(const std::vector<TableRows>& tables);
// Bytes of keys, removed keys, rows and counts.
std::uint64_t ByteCount(const std::vector<TableRows>& tables);
std::uint64_t ByteCount(const PartitionRows& rows);

}  // namespace tarn::server
