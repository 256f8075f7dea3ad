#include "worker/train/batch_source.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace tarn::worker {

BatchSource::BatchSource(const Job& job, DatasetSet sets, BatchPlanner planner, Trace* trace,
                         std::function<void()> wake, Reader reader)
    : reader_(job, sets, std::move(planner), trace),
      ahead_(std::max<std::size_t>(1, job.train.prefetch)),
      wake_(std::move(wake)) {
  if (reader == Reader::kCaller) return;
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
  const auto begin = Trace::SteadyClock::now();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closing_ || ready_.size() < ahead_; });
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
  if (thread_.joinable() || !ready_.empty() || error_) return;
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
  const auto seconds = reader_.Read(open_.lease, open_.offset, &batch);
  open_.offset += batch.lines;
  {
    const std::lock_guard lock(mutex_);
    if (seconds) {
      seconds_.read += seconds->read;
      seconds_.plan += seconds->plan;
      ready_.push_back(std::move(batch));
    } else {
      error_ = seconds.error();
    }
  }
  if (wake_) wake_();
  return seconds.has_value();
}

}  // namespace tarn::worker
