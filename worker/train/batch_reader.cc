#include "worker/train/batch_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "core/hash.h"
#include "core/permutation.h"

namespace tarn::worker {
namespace {

// An evaluation uses one clock, however large its batches are. Larger ones need fewer messages.
constexpr std::uint64_t kEvaluationRows = 2048;

}  // namespace

Status ReadRows(const Dataset& set, const Job& job, LeasePurpose purpose, std::uint32_t epoch, std::uint64_t first_row,
                std::uint64_t rows, Batch* batch) {
  if (purpose != LeasePurpose::kTrain || !job.data.shuffle) return set.Read(first_row, rows, batch);
  const Permutation order(set.rows(), HashCombine(job.job.seed, epoch));
  batch->Clear();
  for (std::uint64_t i = 0; i < rows; ++i) TARN_RETURN_IF_ERROR(set.Append(order(first_row + i), 1, batch));
  return {};
}

Expected<BatchReader::Seconds> BatchReader::Read(const LeaseGrant& lease, std::uint64_t offset, PreparedBatch* batch) {
  try {
    return ReadAndPlan(lease, offset, batch);
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kTooLarge, kNoMemoryForBatches);
  }
}

Expected<BatchReader::Seconds> BatchReader::ReadAndPlan(const LeaseGrant& lease, std::uint64_t offset,
                                                        PreparedBatch* batch) {
  const bool train = lease.purpose == LeasePurpose::kTrain;
  const std::uint64_t batch_rows = train ? std::max<std::uint64_t>(1, lease.batch_rows)
                                         : std::max<std::uint64_t>(kEvaluationRows, job_.train.batch_rows);
  batch->lease = lease;
  batch->lines = std::min(batch_rows, lease.rows - offset);
  batch->last_of_lease = offset + batch->lines >= lease.rows;
  batch->after = {lease.lease, offset + batch->lines};
  const Dataset* set = sets_[static_cast<std::size_t>(lease.purpose)];
  if (set == nullptr)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("lease {} is of data set {} (0: train, 1: valid, 2: test), which the job does not name",
                            lease.lease.value, static_cast<int>(lease.purpose)));
  Span read(trace_, "read", kReaderTrack);
  TARN_RETURN_IF_ERROR(
      ReadRows(*set, job_, lease.purpose, lease.epoch, lease.first_row + offset, batch->lines, &batch->batch));
  TARN_RETURN_IF_ERROR(CheckBatchKeys(batch->lines, batch->batch.keys.size()));
  const double read_s = read.End();
  Span plan(trace_, "plan", kReaderTrack);
  TARN_RETURN_IF_ERROR(planner_.Make(&batch->batch.keys, &batch->plans));
  return Seconds{read_s, plan.End()};
}

}  // namespace tarn::worker
