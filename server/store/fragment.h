// A fragment: the rows of one table in one partition. Dense and sparse fragments share this interface; checkpoints,
// loading, hashing and dropping are written against it and call it once a batch. Look-ups and optimizer steps know the
// two kinds (server/store/row_finder.h). Not thread-safe: the shard's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/types.h"
#include "server/store/change_log.h"
#include "server/store/fragment_cut.h"
#include "server/store/snapshot.h"
#include "server/store/store_context.h"
#include "server/store/table.h"

namespace tarn::server {

class Fragment {
 public:
  // Table and context outlive the fragment.
  Fragment(const Table& table, PartitionId partition, StoreContext* context);
  virtual ~Fragment();
  Fragment(const Fragment&) = delete;
  Fragment& operator=(const Fragment&) = delete;

  const Table& table() const { return table_; }
  PartitionId partition() const { return partition_; }

  // Returns the memory of the rows to the store, which goes on without the fragment. The last call but the destructor.
  virtual void Release() = 0;

  // Rows there are: those that expired do not count.
  virtual std::uint64_t row_count() const = 0;
  // Sum of RowHash (server/store/snapshot.h) over all rows, and of SeenHash over the keys counted without one. An error
  // is the tier's, here and below.
  virtual Expected<std::uint64_t> StateHash() const = 0;
  // Memory besides that of the rows themselves, which lie in the context's arena and tier.
  virtual std::size_t memory_bytes() const = 0;

  // Sets rows from records (core/row_layout.h) of keys that belong to the fragment; none counts as changed. Not within
  // a cut. kCorrupt, naming the key, for a record that no row can have.
  virtual Status Load(std::span<const Key> keys, std::span<const std::uint32_t> records) = 0;

  // Whether a cut of kChanged begun now would name every key removed since its base.
  virtual bool KnowsChanges(bool base_is_previous) const = 0;
  // Begins the fragment's part of the cut that the context describes.
  virtual void BeginCut() = 0;
  // Copies about `bytes` more into `out`; returns what that cost, in bytes of copies. Over when !cut().open().
  virtual std::size_t ContinueCut(std::size_t bytes, std::vector<CutRows>* out) = 0;
  virtual void DropCut() { cut_.Drop(); }
  const FragmentCut& cut() const { return cut_; }

 protected:
  std::uint64_t HashOf(Key key, const RowParts& row) const;

  const Table& table_;
  const PartitionId partition_;
  StoreContext* const context_;
  ChangeMarks marks_;
  FragmentCut cut_;
};

}  // namespace tarn::server
