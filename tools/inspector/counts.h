// Counts the contents of a checkpoint's files, to compare them with its manifest.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/codec/manifest.h"
#include "core/error.h"
#include "server/checkpoint/checkpoint_rows.h"
#include "server/store/snapshot.h"

namespace tarn::inspector {

// Counts of one checkpoint: BeginTable and Add for every table, then Compare.
class Counts {
 public:
  explicit Counts(std::size_t generations) : generations_(generations) {}

  // Begins a table: later entries belong to it.
  void BeginTable(const TableSpec& table, std::uint64_t salt);
  // Adds an entry of CheckpointRowsOptions::on_entry. kCorrupt: the entry is in the wrong place, or has another size
  // than the rows of its table.
  Status Add(const server::StoredEntry& entry);
  // Adds what the rule of a table stores for a partition, in the last generation. `salt`: of the table.
  void AddState(std::uint64_t salt, PartitionId partition, const server::FragmentState& state);

  // Compares the counts of every file, and of every table in every generation, and the hashes with the manifest.
  // kCorrupt names the file or generation and both values. The hash of a generation before the last is not compared if
  // keys may have waited for admission, because it covers those keys, which are no longer stored, or if a table's rule
  // has a state for each partition, which only the last generation has.
  Status Compare(const Manifest& manifest, const std::string& origin) const;

  std::uint64_t rows() const { return rows_; }  // rows of the last generation
  std::uint64_t hash() const { return hash_; }  // hash of these rows and of waiting keys

 private:
  struct Tally {
    std::uint64_t rows = 0, removed = 0, waiting = 0;
    std::int64_t state_rows = 0;  // change relative to the previous generation
    friend bool operator==(const Tally&, const Tally&) = default;
  };
  struct OfGeneration {
    std::map<TableId, Tally> tables;
    std::uint64_t hash = 0;
  };

  void AddToStates(const server::StoredEntry& entry);
  Status CompareTables(const Manifest& manifest, std::size_t generation, const std::string& origin) const;

  std::vector<OfGeneration> generations_;
  std::map<const CheckpointFile*, Tally> files_;
  std::uint64_t rows_ = 0, hash_ = 0;
  // The current table, and the key, partition and generation of the previous entry. The entries of a key come newest
  // first.
  TableId table_;
  std::uint64_t salt_ = 0;
  std::size_t row_words_ = 0;
  std::optional<Key> key_;
  PartitionId partition_;
  std::size_t replaced_by_ = 0;
};

}  // namespace tarn::inspector
