// A cut of a store: the cuts of all its partitions, begun in one step. It contains the rows as of that moment: all, or
// those changed since the base, with the keys removed since. Pushes may be applied during the cut; Store::Apply copies
// a row before it changes. One cut at a time.
//
//   std::vector<TableRows> tables = cut.Begin(request);   // copies no row
//   while (cut.active()) cut.Continue(bytes, &chunks);    // between messages
//
// Not thread-safe: the shard's thread owns it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/error.h"
#include "server/store/snapshot.h"
#include "server/store/store_context.h"
#include "server/store/store_maps.h"

namespace tarn::server {

class StoreCut {
 public:
  // All outlive the cut.
  StoreCut(const Tables& tables, const Partitions& partitions, StoreContext* context)
      : tables_(tables), partitions_(partitions), context_(context) {}

  // Begins a cut of every partition. Returns the tables, without rows.
  std::vector<TableRows> Begin(CutRequest request = {});
  // Begins a snapshot of all rows of one partition, which the store must have. It does not affect the changes that
  // later cuts contain.
  std::vector<TableRows> BeginSnapshot(PartitionId partition);
  // Copies about `bytes` more and appends the complete chunks to `out`, in order of table and partition; rows of one
  // partition have no particular order. The cut is complete when it is no longer active. Errors are those of the tier,
  // and permanent.
  Status Continue(std::size_t bytes, std::vector<CutRows>* out);
  // Aborts the cut. Idempotent.
  void Drop();

  // Whether a kChanged cut that begins now would list every key removed since the base that `base_is_previous_cut`
  // defines. False if too many keys were removed; of such a cut only the hash may be used.
  bool KnowsChanges(bool base_is_previous_cut) const;
  bool active() const { return context_->cut.active; }
  // Whether the cut waits for rows on disk. Store::Maintain receives them.
  bool waits() const { return context_->cut.waits && !context_->tier->cut().HasRecords(); }
  // Store::StateHash at the beginning of the last complete cut, if it had hash_all.
  std::uint64_t state_hash() const { return state_hash_; }
  // Bytes of rows that all cuts so far copied early, because they were about to change. The copies are kept until the
  // walk reaches their partition: in memory, bounded only by the size of the store, or, with a tier, mostly on its
  // disk.
  std::uint64_t early_bytes() const { return context_->cut.early_bytes; }
  // Memory of the copies now kept.
  std::size_t held_bytes() const { return context_->cut.early_held_bytes; }

 private:
  void Prepare(const CutRequest& request);
  Fragment* Next();

  const Tables& tables_;
  const Partitions& partitions_;
  StoreContext* context_;
  std::size_t table_ = 0, partition_ = 0;  // the position of the walk
  std::uint64_t state_hash_ = 0;
};

}  // namespace tarn::server
