#include "scheduler/leases/data_sets.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace tarn::scheduler {
namespace {

constexpr std::uint64_t kSplitsMax = 1u << 22;  // per data set
// Default number of splits per worker, and maximum size of a default split in batches.
constexpr std::uint64_t kSplitsPerWorker = 32, kEvaluationSplitsPerWorker = 4;
constexpr std::uint64_t kSplitBatchesMax = 64;
// If ranks have different batch sizes, the last batch of a split is often shorter than the others. A split then has at
// least this many of the largest batches, so that few batches are short.
constexpr std::uint64_t kUnequalBatchesMin = 8;

std::uint64_t DivideUp(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

// Rounds split_rows up to a multiple of batch_rows, and raises it if there would be more than kSplitsMax splits.
std::uint64_t Fit(std::uint64_t split_rows, std::uint64_t rows, std::uint64_t batch_rows) {
  const std::uint64_t least = std::max<std::uint64_t>(DivideUp(rows, kSplitsMax), 1);
  return DivideUp(std::max(split_rows, least), batch_rows) * batch_rows;
}

// The split size for about `splits` splits of at most kSplitBatchesMax batches each.
std::uint64_t SplitRows(std::uint64_t rows, std::uint64_t batch_rows, std::uint64_t splits) {
  const std::uint64_t batches = DivideUp(DivideUp(rows, batch_rows), splits);
  return Fit(std::clamp<std::uint64_t>(batches, 1, kSplitBatchesMax) * batch_rows, rows, batch_rows);
}

// The rows of the largest training batch.
std::uint64_t LargestBatch(const Job& job) {
  const std::vector<std::uint64_t> by_rank = BatchRowsByRank(job);
  return by_rank.empty() ? DataRowsPerPushMax(job) : *std::ranges::max_element(by_rank);
}

}  // namespace

DataSets::DataSets(const Job& job)
    : job_(job), by_rank_(IsLockstep(job.consistency)), split_rows_(job.data.split_rows) {}

void DataSets::Resume(const DataState& state) {
  known_ = state.rows[0] != 0;
  if (!known_) return;
  std::copy(std::begin(state.rows), std::end(state.rows), rows_);
  split_rows_ = state.split_rows;
}

void DataSets::Fill(DataState* state) const {
  std::copy(std::begin(rows_), std::end(rows_), state->rows);
  state->split_rows = split_rows_;
}

Status DataSets::Set(const SetRows& rows) {
  if (rows[0] == 0 && rows[1] == 0 && rows[2] == 0) return {};
  if (known_) {
    if (std::equal(std::begin(rows), std::end(rows), rows_)) return {};
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("data: this worker has {}, {} and {} rows of training, validation and test data, but the "
                            "first worker had {}, {} and {}: all workers must read the same files",
                            rows[0], rows[1], rows[2], rows_[0], rows_[1], rows_[2]));
  }
  if (rows[0] == 0) return Fail(ErrorCode::kInvalidArgument, "data: the training set has no rows");
  std::copy(std::begin(rows), std::end(rows), rows_);
  known_ = true;
  ChooseSplitRows();
  return {};
}

void DataSets::ChooseSplitRows() {
  if (!known_) return;
  const std::uint64_t splits = std::uint64_t{job_.fleet.workers} * kSplitsPerWorker, batch_rows = LargestBatch(job_);
  split_rows_ = job_.data.split_rows != 0 ? Fit(job_.data.split_rows, rows_[0], batch_rows)
                                          : SplitRows(rows_[0], batch_rows, splits);
  if (!job_.train.batch_shares.empty()) split_rows_ = std::max(split_rows_, kUnequalBatchesMin * batch_rows);
}

Splits DataSets::MakeTraining(std::uint32_t epoch, const std::vector<std::uint64_t>& trained) const {
  return Splits({.purpose = LeasePurpose::kTrain,
                 .epoch = epoch,
                 .rows = rows_[0],
                 .split_rows = split_rows_,
                 .batch_rows = DataRowsPerPush(job_, epoch),
                 .batch_rows_by_rank = BatchRowsByRank(job_),
                 .owners = by_rank_ ? job_.fleet.workers : 0,
                 .shuffle = job_.data.shuffle,
                 .seed = job_.job.seed},
                trained);
}

Splits DataSets::MakeEvaluation(LeasePurpose set, std::uint32_t epoch) const {
  const std::uint64_t splits = std::uint64_t{job_.fleet.workers} * kEvaluationSplitsPerWorker;
  const std::uint64_t batch_rows = DataRowsPerPushMax(job_);
  return Splits({.purpose = set,
                 .epoch = epoch,
                 .rows = rows(set),
                 .split_rows = SplitRows(rows(set), batch_rows, splits),
                 .batch_rows = batch_rows});
}

}  // namespace tarn::scheduler
