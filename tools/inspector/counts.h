// What the files of a checkpoint hold, counted as its manifest counts it.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/codec/manifest.h"
#include "core/error.h"
#include "server/checkpoint/checkpoint_rows.h"

namespace tarn::inspector {

class Counts {
 public:
  explicit Counts(std::size_t generations) : generations_(generations) {}

  // The entries that follow are of this table.
  void BeginTable(const TableSpec& table, std::uint64_t salt);
  // As CheckpointRowsOptions::on_entry gives them. kCorrupt: it lies where it does not belong, or has another size than
  // its table's rows.
  Status Add(const server::StoredEntry& entry);

  // Whether the manifest says the same: of every file, of every table in every generation, and the hashes. kCorrupt,
  // naming the file or the generation, what was said and what there is. Of older generations than the last the hash is
  // not compared where keys may have waited for their admission: it covers them, and they are not there any more.
  Status Compare(const Manifest& manifest, const std::string& origin) const;

  std::uint64_t rows() const { return rows_; }  // that count
  std::uint64_t hash() const { return hash_; }  // of these and of what waits

 private:
  struct Tally {
    std::uint64_t rows = 0, removed = 0, seen = 0;
    std::int64_t state_rows = 0;  // what it adds to those of the generation before
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
  // The table at hand, and the entry before of the same key.
  TableId table_;
  std::uint64_t salt_ = 0;
  std::size_t row_words_ = 0;
  std::optional<Key> key_;
  PartitionId partition_;
  std::size_t replaced_by_ = 0;
};

}  // namespace tarn::inspector
