#include "server/log/commit_queue.h"

#include <chrono>

namespace tarn::server {
namespace {

// A commit begins when this many bytes are queued.
constexpr std::size_t kCommitBytes = std::size_t{1} << 20;
// How long records that are not urgent wait, at most. Ticks follow pushes, and a training worker does not wait for
// their acknowledgement, so they join the commit of the next pushes.
constexpr std::chrono::milliseconds kWaitMax{5};

}  // namespace

void CommitQueue::Start(LogSequence last) {
  queue_.Start(last);
  synced_ = last;
}

LogSequence CommitQueue::BeginSegment(CheckpointId cut, LogRecord head) {
  const std::lock_guard lock(mutex_);
  queue_.PushBegin(cut);
  const LogSequence sequence = queue_.Push(std::move(head));
  Wake();
  return sequence;
}

LogSequence CommitQueue::Append(LogRecord record) {
  const std::lock_guard lock(mutex_);
  const std::size_t before = queue_.bytes();
  const LogSequence sequence = queue_.Push(std::move(record));
  if (before < kCommitBytes && queue_.bytes() >= kCommitBytes) Wake();
  return sequence;
}

void CommitQueue::DropBefore(CheckpointId cut) {
  const std::lock_guard lock(mutex_);
  queue_.PushDrop(cut);
  Wake();
}

// Requires the lock.
bool CommitQueue::IsDue() const { return queue_.urgent() || queue_.bytes() >= kCommitBytes; }

// Requires the lock.
void CommitQueue::Wake() {
  if (committing_) return more_.notify_one();
  if (!status_) return;
  begin_();
  committing_ = true;
}

void CommitQueue::Stop() {
  const std::lock_guard lock(mutex_);
  stop_ = true;
  if (!queue_.empty()) Wake();
}

void CommitQueue::EndTurn() {
  const std::lock_guard lock(mutex_);
  if (!queue_.empty() && (!committing_ || (strand_waits_ && IsDue()))) Wake();
}

Expected<LogSequence> CommitQueue::Synced() {
  const std::lock_guard lock(mutex_);
  if (!status_) return std::unexpected(status_.error());
  return synced_;
}

std::vector<LogQueue::Item> CommitQueue::Take() {
  std::unique_lock lock(mutex_);
  if (status_ && !queue_.empty() && !IsDue()) {
    strand_waits_ = true;
    more_.wait_for(lock, kWaitMax, [this] { return stop_ || IsDue(); });
    strand_waits_ = false;
  }
  committing_ = status_ && !queue_.empty();
  return committing_ ? queue_.TakeAll() : std::vector<LogQueue::Item>();
}

void CommitQueue::Publish(Status status, LogSequence durable) {
  const std::lock_guard lock(mutex_);
  status_ = std::move(status);
  if (status_) synced_ = durable;
}

bool CommitQueue::IsIdle() {
  const std::lock_guard lock(mutex_);
  return status_ && queue_.empty() && !stop_;
}

}  // namespace tarn::server
