// The hot rows of one sparse table: finds the cached rows of a batch that are recent enough, names those to be pulled
// and caches them, and ensures that a batch never reads rows older than the staleness bound allows. Rules H1 to H5 and
// H9 of docs/protocol.md; kernels/hot_rows.h is the cache itself.
//
//   table->Look(plan, use, &batch);                     // batch.missing() is pulled, for use at `use`
//   table->Arrive(std::move(values), version, &batch);  // the pulled rows; not needed if nothing was missing
//   table->Read(&batch);                                // all rows of the plan, to compute with
//   table->Push(batch);                                 // if its gradients were pushed
//   table->End(&batch);
//
// Several batches may be between Look and End. A batch may use a row that an earlier batch has requested, so batches
// must call Read and End in the order of their Looks, which is checked. One thread; errors are those of the place's
// memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/buffer.h"
#include "core/job/job.h"
#include "kernels/hot_rows.h"
#include "worker/client/plan.h"
#include "worker/train/arrived_rows.h"
#include "worker/train/row_place.h"

namespace tarn::worker {

// The state of one batch in one table. Reused for a later batch, it keeps its memory. The table outlives it.
class HotBatch {
 public:
  const Plan& missing() const { return missing_; }
  // After End: `use` minus the oldest version of the rows that were read.
  std::uint64_t staleness() const { return staleness_; }

 private:
  friend class HotTable;
  // Keys [begin, begin + count) of the plan, for one call of the cache; `missing` of them were not found.
  struct Part {
    std::size_t begin = 0, count = 0, missing = 0;
  };

  std::uint64_t number_ = 0;
  Clock use_;
  std::vector<Part> parts_;
  Plan missing_;
  std::vector<std::uint32_t> missing_at_;  // places in the plan
  ArrivedRows arrived_;
  bool read_ = false;
  std::uint64_t staleness_ = 0;
  // In the place.
  const Key* keys_ = nullptr;
  PlacedRoom keys_room_, slots_, absent_;
  PlacedRoom all_rows_;  // between Read and End
  PlacedRoom counts_;    // in Look: the number of missing rows of a part; after Read: each part's oldest version
};

struct HotTableOptions {
  HotRowsSpec keep;
  OwnPushes own_pushes = OwnPushes::kBounded;
  std::uint32_t keys_at_once = 1u << 20;  // most keys of one call of the cache; sizes its working memory
};

class HotTable {
 public:
  // kIo, kTooLarge: no memory for it.
  static Expected<std::unique_ptr<HotTable>> Make(RowPlace* place, const TableSpec& spec,
                                                  const HotTableOptions& options);

  // Looks up the rows of a plan for use at clock `use`. The plan must be valid until End.
  Status Look(const Plan& plan, Clock use, HotBatch* batch);
  // values: rows of missing(), in its order; `version`: the least minimum clock among the replies.
  Status Arrive(Buffer values, Clock version, HotBatch* batch);
  // All rows of the plan x dim, in the place's memory, valid until End. Ordered on the place's stream; does not block.
  Expected<const float*> Read(HotBatch* batch);
  // Call it when the worker has pushed to all rows of the batch: if its pulls must see its own pushes (rule H4), the
  // cache drops these rows.
  void Push(const HotBatch& batch);
  // Releases the rows. They must not be in use, and Read must be complete: the caller has waited for the place, or for
  // the stream to which the rows were passed (RowPlace::HandOver).
  void End(HotBatch* batch);

  // Drops all rows. A batch between Look and End keeps its rows.
  void Clear() { cache_->Clear(); }

  // The oldest version of a row that a Look for use at `use` may find.
  Clock OldestAllowedAt(Clock use) const;

  std::uint64_t looked_for() const { return looked_for_; }  // rows
  std::uint64_t found() const { return found_; }

 private:
  HotTable(RowPlace* place, const TableSpec& spec, const HotTableOptions& options)
      : place_(place), spec_(spec), options_(options) {}
  Status Reserve(const Plan& plan, HotBatch* batch);
  Status BringKeys(const Plan& plan, HotBatch* batch);
  Status LookForPart(Clock least, std::size_t begin, std::size_t count, HotBatch* batch);
  void Age();

  RowPlace* place_;
  TableSpec spec_;
  HotTableOptions options_;
  std::unique_ptr<kernels::HotRows> cache_;
  std::vector<PlacedRoom> spare_;                        // all_rows_ of ended batches, for reuse
  std::uint64_t begun_ = 0, next_read_ = 0, ended_ = 0;  // batches
  std::uint64_t looked_for_ = 0, found_ = 0, aged_at_ = 0;
};

}  // namespace tarn::worker
