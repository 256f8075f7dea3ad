// Reads the next batch of a lease from its data set and makes its plans. Uses no parameters.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.h"
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
  std::uint64_t lines = 0;  // lines of the file; more than batch.rows if some are malformed
  bool last_of_lease = false;
  DataPosition after;  // the position after this batch
  Batch batch;
  std::vector<Plan> plans;  // by table of the model; empty for dense tables, whose plan never changes
};

// The data sets of a job by LeasePurpose; an absent one is null.
using DatasetSet = std::array<const Dataset*, 3>;

// Reads rows [first_row, first_row + rows) in the order of the epoch: that of the file or, for training with
// data.shuffle, a random order determined by the job's seed and the epoch.
Status ReadRows(const Dataset& set, const Job& job, LeasePurpose purpose, std::uint32_t epoch, std::uint64_t first_row,
                std::uint64_t rows, Batch* batch);

inline constexpr char kNoMemoryForBatches[] =
    "this worker's machine has too little memory for its batches and the model: reduce train.batch_rows, "
    "train.prefetch or train.hot_rows, or use a smaller model";

// One thread at a time. Must outlive the plans that it made.
class BatchReader {
 public:
  struct Seconds {
    double read = 0, plan = 0;
  };
  // The job and the data sets outlive it. `trace` may be null.
  BatchReader(const Job& job, DatasetSet sets, BatchPlanner planner, Trace* trace)
      : job_(job), sets_(sets), planner_(std::move(planner)), trace_(trace) {}

  // Makes `batch` from the rows of the lease after the first `offset`. It may be an unused batch, whose memory is
  // reused. Returns how long reading and planning took. kTooLarge: the batch exceeds this machine's memory, or has
  // too many keys (CheckBatchKeys). Other errors are those of the data set and the planner.
  Expected<Seconds> Read(const LeaseGrant& lease, std::uint64_t offset, PreparedBatch* batch);

 private:
  Expected<Seconds> ReadAndPlan(const LeaseGrant& lease, std::uint64_t offset, PreparedBatch* batch);

  const Job& job_;
  DatasetSet sets_;
  BatchPlanner planner_;
  Trace* trace_;
};

}  // namespace tarn::worker
