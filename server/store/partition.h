// One partition: the watermarks of the workers that push to it, and a fragment for each table that has rows in it. It
// is the unit that checkpoints, replicas and moves are made of: it can be created, loaded, cut, hashed and dropped
// while the store serves the others. Not thread-safe: the shard's thread owns it.
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

  // Null: no row of the table was ever pushed to the partition or loaded into it. Of dense tables there is one from
  // AddTable on.
  Fragment* Find(TableId table) const {
    return table.value < fragments_.size() ? fragments_[table.value].get() : nullptr;
  }
  // `table` is sparse, or dense.
  SparseFragment* FindSparse(TableId table) const { return static_cast<SparseFragment*>(Find(table)); }
  DenseFragment* FindDense(TableId table) const { return static_cast<DenseFragment*>(Find(table)); }
  // Creates the fragment if there is none. Throws OutOfMemory. The table outlives the partition.
  Fragment& Obtain(const Table& table);

  // The last push of each worker that was applied to the partition, or gathered for it.
  Watermarks& watermarks() { return watermarks_; }
  const Watermarks& watermarks() const { return watermarks_; }

  // kWrongShard: a key lies in another partition. kInvalidArgument: a dense key is beyond the table.
  Status CheckKeys(const Table& table, std::span<const Key> keys) const;

  // Sets rows from records of keys that lie in the partition (Fragment::Load).
  Status Load(const Table& table, std::span<const Key> keys, std::span<const std::uint32_t> records) {
    return Obtain(table).Load(keys, records);
  }
  // Of a sparse table: takes rows away, which need not exist; sets how often keys without a row were pushed.
  void Remove(const Table& table, std::span<const Key> keys);
  void LoadSeen(const Table& table, std::span<const Seen> seen);

  std::uint64_t row_count() const;
  // Sum of the hashes of all rows, and of the keys counted without one: two copies of a partition have the same. An
  // error is the tier's.
  Expected<std::uint64_t> StateHash() const;
  std::size_t memory_bytes() const;

  // Whether a cut of kChanged begun now would name every key removed since its base.
  bool KnowsChanges(bool base_is_previous) const;
  // Begins the partition's part of the cut that the context describes; Fragment::ContinueCut goes on.
  void BeginCut();
  void DropCut();

  // Returns the memory and the disk of all rows to the store. The last call but the destructor; not within a cut.
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
