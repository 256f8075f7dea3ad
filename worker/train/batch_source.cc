#include "worker/train/batch_source.h"

#include <fmt/format.h>
#include <pthread.h>

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

BatchSource::BatchSource(const Job& job, DatasetSet sets, BatchPlanner planner, Trace* trace,
                         std::function<void()> wake, Reader reader)
    : job_(job), reader_(reader), sets_(sets), planner_(std::move(planner)), trace_(trace), wake_(std::move(wake)) {
  if (reader_ == Reader::kCaller) return;
  thread_ = std::jthread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "tarn-reader");
}

BatchSource::~BatchSource() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
}

void BatchSource::AddLease(const LeaseGrant& lease) {
  {
    const std::lock_guard lock(mutex_);
    leases_.push_back(lease);
    ++leases_open_;
  }
  changed_.notify_all();
}

std::optional<PreparedBatch> BatchSource::TryTake() {
  std::optional<PreparedBatch> batch;
  {
    const std::lock_guard lock(mutex_);
    if (ready_.empty()) return batch;
    batch = std::move(ready_.front());
    ready_.pop_front();
    if (batch->last_of_lease) --leases_open_;
  }
  changed_.notify_all();
  return batch;
}

const PreparedBatch* BatchSource::Next() const {
  const std::lock_guard lock(mutex_);
  return ready_.empty() ? nullptr : &ready_.front();
}

std::optional<LeasePurpose> BatchSource::NextPurpose() const {
  const std::lock_guard lock(mutex_);
  if (ready_.empty()) return std::nullopt;
  return ready_.front().lease.purpose;
}

void BatchSource::Recycle(PreparedBatch batch) {
  const std::lock_guard lock(mutex_);
  spare_.push_back(std::move(batch));
}

std::size_t BatchSource::leases_open() const {
  const std::lock_guard lock(mutex_);
  return leases_open_;
}

std::optional<Error> BatchSource::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

BatchSource::Seconds BatchSource::seconds() const {
  const std::lock_guard lock(mutex_);
  return seconds_;
}

bool BatchSource::AwaitRoom(PreparedBatch* batch) {
  const std::size_t ahead = std::max<std::uint32_t>(1, job_.train.prefetch);
  const auto begin = Trace::SteadyClock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closing_ || ready_.size() < ahead; });
  seconds_.await_room += std::chrono::duration<double>(Trace::SteadyClock::now() - begin).count();
  if (closing_) return false;
  TakeSpare(batch);
  return true;
}

void BatchSource::Run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return closing_ || !leases_.empty(); });
      if (closing_) return;
      OpenNext();
    }
    while (!open_.done()) {
      PreparedBatch batch;
      if (!AwaitRoom(&batch) || !ReadNext(std::move(batch))) return;
    }
  }
}

void BatchSource::ReadIfCaller() {
  if (reader_ == Reader::kThread || !ready_.empty() || error_) return;
  if (open_.done()) {
    if (leases_.empty()) return;
    OpenNext();
  }
  PreparedBatch batch;
  TakeSpare(&batch);
  ReadNext(std::move(batch));
}

void BatchSource::OpenNext() {
  open_ = {leases_.front(), leases_.front().skip_rows};
  leases_.pop_front();
}

void BatchSource::TakeSpare(PreparedBatch* batch) {
  if (spare_.empty()) return;
  *batch = std::move(spare_.back());
  spare_.pop_back();
}

bool BatchSource::ReadNext(PreparedBatch batch) {
  const Status status = PrepareWithinMemory(open_.lease, open_.offset, &batch);
  open_.offset += batch.lines;
  {
    const std::lock_guard lock(mutex_);
    if (!status)
      error_ = status.error();
    else
      ready_.push_back(std::move(batch));
  }
  if (wake_) wake_();
  return status.has_value();
}

// A batch may exceed the memory of this machine.
Status BatchSource::PrepareWithinMemory(const LeaseGrant& lease, std::uint64_t offset, PreparedBatch* out) {
  try {
    return Prepare(lease, offset, out);
  } catch (const std::bad_alloc&) {
    return Fail(ErrorCode::kTooLarge, kNoMemoryForBatches);
  }
}

Status BatchSource::Prepare(const LeaseGrant& lease, std::uint64_t offset, PreparedBatch* out) {
  const bool train = lease.purpose == LeasePurpose::kTrain;
  const std::uint64_t batch_rows = train ? std::max<std::uint64_t>(1, lease.batch_rows)
                                         : std::max<std::uint64_t>(kEvaluationRows, job_.train.batch_rows);
  out->lease = lease;
  out->lines = std::min(batch_rows, lease.rows - offset);
  out->last_of_lease = offset + out->lines >= lease.rows;
  out->after = {lease.lease, offset + out->lines};
  const Dataset* set = sets_[static_cast<std::size_t>(lease.purpose)];
  if (set == nullptr)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("lease {} is of data set {} (0: train, 1: valid, 2: test), which the job does not name",
                            lease.lease.value, static_cast<int>(lease.purpose)));
  Span read(trace_, "read", kReaderTrack);
  TARN_RETURN_IF_ERROR(
      ReadRows(*set, job_, lease.purpose, lease.epoch, lease.first_row + offset, out->lines, &out->batch));
  TARN_RETURN_IF_ERROR(CheckBatchKeys(out->lines, out->batch.keys.size()));
  const double read_s = read.End();
  Span plan(trace_, "plan", kReaderTrack);
  TARN_RETURN_IF_ERROR(planner_.Make(&out->batch.keys, &out->plans));
  const double plan_s = plan.End();
  const std::lock_guard lock(mutex_);
  seconds_.read += read_s;
  seconds_.plan += plan_s;
  return {};
}

}  // namespace tarn::worker
