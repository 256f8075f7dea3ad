// The reading side of the pipeline: a thread that turns leases into batches with plans, a few ahead of the training
// loop. Reading and planning may run ahead of any staleness bound, since they look at no parameter.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/job/job.h"
#include "core/message.h"
#include "worker/client/plan.h"
#include "worker/data/batch.h"
#include "worker/data/dataset.h"
#include "worker/train/batch_planner.h"
#include "worker/train/trace.h"

namespace tarn::worker {

struct PreparedBatch {
  LeaseGrant lease;
  std::uint64_t lines = 0;  // of the file; batch.rows may be fewer where lines are malformed
  bool last_of_lease = false;
  DataPosition after;  // once this batch is trained
  Batch batch;
  std::vector<Plan> plans;  // by table of the model; of dense tables empty: their plan never changes
};

// The data sets of a job by LeasePurpose; an absent one is null.
using DatasetSet = std::array<const Dataset*, 3>;

// Rows [first_row, first_row + rows) of an epoch's order: the file's, or, when training with data.shuffle, a random
// one that depends on the job's seed and the epoch alone.
Status ReadRows(const Dataset& set, const Job& job, LeasePurpose purpose, std::uint32_t epoch, std::uint64_t first_row,
                std::uint64_t rows, Batch* batch);

inline constexpr char kNoMemoryForBatches[] =
    "this worker's machine has no memory for what it reads and computes: train.batch_rows, train.prefetch, "
    "train.hot_rows or the model may be smaller";

// AddLease, TryTake, Recycle and error may be called from one other thread than the reader's own.
class BatchSource {
 public:
  // `wake` is called from the reader's thread when a batch is ready or reading has failed.
  BatchSource(const Job& job, DatasetSet sets, BatchPlanner planner, Trace* trace, std::function<void()> wake);
  // What plans have in a GPU's memory goes with the source: no work that uses them is under way.
  ~BatchSource();

  void AddLease(const LeaseGrant& lease);
  // The next batch in the order of leases, if it is ready.
  std::optional<PreparedBatch> TryTake();
  // What TryTake would give, valid until then; null if nothing is ready.
  const PreparedBatch* Next() const;
  // The purpose of what TryTake would give, if something is ready.
  std::optional<LeasePurpose> NextPurpose() const;
  // Gives memory back for reuse. Nobody uses the batch any more, a GPU neither.
  void Recycle(PreparedBatch batch);
  // Leases that have not been taken to their end yet.
  std::size_t leases_open() const;
  // Why reading stopped, if it did.
  std::optional<Error> error() const;
  // Of the reader's thread.
  struct Seconds {
    double read = 0, plan = 0;
    double await_room = 0;  // its batches lie ready
  };
  Seconds seconds() const;

 private:
  void Run();
  // Waits for a place for one more batch ready; false if there will be none.
  bool AwaitRoom(PreparedBatch* batch);
  Status PrepareWithinMemory(const LeaseGrant& lease, std::uint64_t offset, PreparedBatch* out);
  Status Prepare(const LeaseGrant& lease, std::uint64_t offset, PreparedBatch* out);

  const Job& job_;
  DatasetSet sets_;
  BatchPlanner planner_;
  Trace* trace_;
  std::function<void()> wake_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<LeaseGrant> leases_;
  std::deque<PreparedBatch> ready_;
  std::vector<PreparedBatch> spare_;
  std::size_t leases_open_ = 0;
  std::optional<Error> error_;
  bool closing_ = false;
  Seconds seconds_;
  std::jthread thread_;
};

}  // namespace tarn::worker
