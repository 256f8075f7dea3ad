// A cut of a store: the set of the cuts of its partitions, all begun in one step. It holds the rows as they were then,
// whatever is applied while they are copied, or of them those that changed since the base, with the keys removed
// since. A row that is about to change is copied before, within Store::Apply. One cut at a time.
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
  // Begins a snapshot of one partition, which the store owns: all of its rows. It is no checkpoint: the changes that
  // later cuts hand out are counted from where they were counted before.
  std::vector<TableRows> BeginSnapshot(PartitionId partition);
  // Copies about `bytes` more and hands out what is complete: chunks of rows in order of table and partition, those of
  // one partition in no particular order. The cut is over when it is not active any more. An error is the tier's, and
  // final.
  Status Continue(std::size_t bytes, std::vector<CutRows>* out);
  // Gives the cut up. Idempotent.
  void Drop();

  // Whether a cut of kChanged begun now would name every key removed since its base, as the request would define it:
  // not if more were than are remembered. Of such a cut only the hash may be used.
  bool KnowsChanges(bool base_is_previous_cut) const;
  bool active() const { return context_->cut.active; }
  // Whether the cut waits for rows on disk. They come in Store::Tend.
  bool waits() const { return context_->cut.waits && !context_->tier->HasForCut(); }
  // What Store::StateHash was at the beginning of the last cut that was handed out whole, if it had hash_all.
  std::uint64_t state_hash() const { return state_hash_; }
  // Bytes of rows that all cuts so far have copied because they were about to change. They wait until the walk comes
  // to their partition: in memory, of which only the size of the store bounds them, or, with a tier, mostly on its
  // disk.
  std::uint64_t early_bytes() const { return context_->cut.early_bytes; }
  // Memory of those that wait now.
  std::size_t held_bytes() const { return context_->cut.early_held_bytes; }

 private:
  void Prepare(const CutRequest& request);
  Fragment* Next();

  const Tables& tables_;
  const Partitions& partitions_;
  StoreContext* context_;
  std::size_t table_ = 0, partition_ = 0;  // where the walk is
  std::uint64_t state_hash_ = 0;
};

}  // namespace tarn::server
