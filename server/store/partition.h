// One partition: the watermarks of the workers that push to it, and a fragment for each table that has rows in it. The
// unit of checkpoints: a partition can be created, loaded, cut, hashed and dropped while the store serves the others.
// Not thread-safe: the shard's thread owns it.
//
//   Partition& partition = store.AddPartition(id);
//   partition.Load(table, keys, records);
//   partition.watermarks().Set(worker, sequence);
//   auto hash = partition.StateHash();
//   store.cut().BeginSnapshot(id);                 // and Continue, while the partition takes pushes
//   store.DropPartition(id);
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "server/store/dense_fragment.h"
#include "server/store/fragment.h"
#include "server/store/sparse_fragment.h"
#include "server/store/store_context.h"
#include "server/store/table.h"
#include "server/store/watermarks.h"

namespace tarn::server {

class Partition {
 public:
  // `place` is the partition's number in the tier. The context outlives the partition.
  Partition(PartitionId id, std::uint32_t place, StoreContext* context);
  Partition(const Partition&) = delete;
  Partition& operator=(const Partition&) = delete;

  PartitionId id() const { return id_; }
  std::uint32_t place() const { return place_; }

  // The fragment of a table. Null: no row of the table was ever pushed to the partition or loaded into it. Dense tables
  // have a fragment from AddTable on.
  Fragment* Find(TableId table) const {
    return table.value < fragments_.size() ? fragments_[table.value].get() : nullptr;
  }
  // The same as the derived class: `table` must be sparse, or dense.
  SparseFragment* FindSparse(TableId table) const { return static_cast<SparseFragment*>(Find(table)); }
  DenseFragment* FindDense(TableId table) const { return static_cast<DenseFragment*>(Find(table)); }
  // Creates the fragment if there is none. Throws OutOfMemory. The table outlives the partition.
  Fragment& Obtain(const Table& table);

  // For each worker incarnation, the sequence of the last push that was applied to the partition, or gathered for it.
  Watermarks& watermarks() { return watermarks_; }
  const Watermarks& watermarks() const { return watermarks_; }

  // kWrongShard: a key lies in another partition. kInvalidArgument: a key of a dense table is too large.
  Status CheckKeys(const Table& table, std::span<const Key> keys) const;

  // Sets rows from records of keys that lie in the partition (Fragment::Load).
  Status Load(const Table& table, std::span<const Key> keys, std::span<const std::uint32_t> records) {
    return Obtain(table).Load(keys, records);
  }
  // For sparse tables. Remove: removes the rows of keys, which need not have one. LoadSeen: sets the push counts of
  // keys without a row.
  void Remove(const Table& table, std::span<const Key> keys);
  void LoadSeen(const Table& table, std::span<const Seen> seen);

  // Version of a table in the partition: the number of its sections that were applied.
  Version VersionOf(TableId table) const {
    const Fragment* fragment = Find(table);
    return fragment == nullptr ? Version(0) : fragment->version();
  }

  // The versions above 0, in order of table.
  std::vector<std::pair<TableId, Version>> versions() const;

  std::uint64_t row_count() const;
  // Sum of the hashes of all rows, of the keys that are counted but have no row, and of the rules' states. Equal for
  // equal contents. Errors are those of the tier.
  Expected<std::uint64_t> StateHash() const;
  std::size_t memory_bytes() const;

  // Whether a kChanged cut that begins now would list every key removed since its base.
  bool KnowsChanges(bool base_is_previous) const;
  // Begins the partition's part of the cut that the context describes. Fragment::ContinueCut continues it.
  void BeginCut();
  void DropCut();

  // Returns the memory and the disk space of all rows to the store. Only the destructor may be called after it. Must
  // not be called during a cut.
  void Release();

 private:
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const auto& fragment : fragments_)
      if (fragment) visit(*fragment);
  }

  PartitionId id_;
  std::uint32_t place_;
  StoreContext* context_;
  Watermarks watermarks_;
  std::vector<std::unique_ptr<Fragment>> fragments_;  // by table
};

}  // namespace tarn::server
