#include "server/log/file_shard_log.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <filesystem>
#include <utility>

#include "core/limits.h"
#include "server/exhaustion.h"
#include "server/log/log_directory.h"
#include "server/log/log_reader.h"

namespace tarn::server {
namespace {

// While records come, the mark is durable about so much behind them. After a mere crash of the process it is exact.
constexpr std::chrono::milliseconds kMarkPeriod{500};

// Between two commits, unless so much waits: the pushes of a clock come one after the other, their worker waits for the
// last of them only, and each commit costs the disk and two threads a turn.
constexpr std::chrono::microseconds kCommitPause{250};
constexpr std::size_t kCommitBytes = std::size_t{1} << 20;

}  // namespace

FileShardLog::FileShardLog(std::unique_ptr<FileOps> files, std::string directory, std::function<void()> wake,
                           LogWriterOptions options)
    : files_(std::move(files)), directory_(std::move(directory)), wake_(std::move(wake)), options_(options) {}

FileShardLog::~FileShardLog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  more_.notify_one();
  if (thread_.joinable()) thread_.join();
}

Status FileShardLog::LockDirectory() {
  TARN_RETURN_IF_ERROR(files_->MakeDirectory(directory_));
  // A log whose folder has no durable name is none: <run>/log/shard-N, and the two above it.
  const std::filesystem::path folder(directory_), above = folder.parent_path();
  TARN_RETURN_IF_ERROR(files_->SyncDirectory(above.string()));
  TARN_RETURN_IF_ERROR(files_->SyncDirectory(above.parent_path().string()));
  auto lock = files_->Lock(directory_ + "/" + kLockName);
  if (!lock) return std::unexpected(lock.error());
  lock_ = std::move(*lock);
  return {};
}

Status FileShardLog::Open(const LogIdentity& identity) {
  TARN_RETURN_IF_ERROR(LockDirectory());
  TARN_RETURN_IF_ERROR(ClearForNewLog(files_.get(), directory_, identity));
  return Start(identity, {}, true);
}

Status FileShardLog::Recover(const LogIdentity& identity, CheckpointId from, LogSequence at_least, LogSink& sink) {
  TARN_RETURN_IF_ERROR(LockDirectory());
  auto tail = ReadLog(files_.get(), directory_, identity, from, at_least, sink);
  if (!tail) return std::unexpected(tail.error());
  TARN_RETURN_IF_ERROR(RemoveTorn(files_.get(), directory_, *tail));
  return Start(identity, std::move(*tail), false);
}

Status FileShardLog::Start(const LogIdentity& identity, LogTail tail, bool new_log) {
  queue_.Start(tail.last);
  synced_ = tail.last;
  writer_.emplace(files_.get(), directory_, identity, std::move(tail), options_);
  TARN_RETURN_IF_ERROR(writer_->Start(new_log));
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "log");
    Run();
  });
  return {};
}

LogSequence FileShardLog::BeginSegment(CheckpointId cut, LogRecord head) {
  const std::lock_guard lock(mutex_);
  queue_.PushBegin(cut);
  const LogSequence sequence = queue_.Push(std::move(head));
  more_.notify_one();
  return sequence;
}

LogSequence FileShardLog::Append(LogRecord record) {
  const std::lock_guard lock(mutex_);
  const std::size_t before = queue_.bytes();
  const bool first = queue_.empty();
  const LogSequence sequence = queue_.Push(std::move(record));
  if (first || (before < kCommitBytes && queue_.bytes() >= kCommitBytes)) more_.notify_one();
  return sequence;
}

void FileShardLog::DropBefore(CheckpointId cut) {
  const std::lock_guard lock(mutex_);
  queue_.PushDrop(cut);
  dropping_.fetch_add(1, std::memory_order_relaxed);
  more_.notify_one();
}

Expected<LogSequence> FileShardLog::TakeSynced() {
  const std::lock_guard lock(mutex_);
  if (!status_) return std::unexpected(status_.error());
  return synced_;
}

// What is thrown on the log's thread ends the log, not the process.
template <typename Work>
Status FileShardLog::Guarded(Work work) {
  try {
    Status status;
    const Status memory = CatchExhaustion([&] { status = work(); });
    return memory ? status : memory;
  } catch (const std::exception& e) {
    return Fail(ErrorCode::kInternal, e.what());
  }
}

void FileShardLog::Run() {
  std::unique_lock lock(mutex_);
  auto mark_due = std::chrono::steady_clock::now();
  for (;;) {
    more_.wait(lock, [this] { return stop_ || !queue_.empty(); });
    if (queue_.empty()) {
      lock.unlock();
      (void)writer_->Trim();  // what is durable is, with or without
      return;
    }
    auto items = queue_.TakeAll();
    lock.unlock();
    const auto dropped = static_cast<std::uint32_t>(std::ranges::count_if(
        items, [](const LogQueue::Item& item) { return std::holds_alternative<LogQueue::Drop>(item); }));
    const auto now = std::chrono::steady_clock::now();
    const bool mark = now >= mark_due;
    if (mark) mark_due = now + kMarkPeriod;
    Status status = Guarded([&] {
      const Status written = WriteItems(std::move(items), &*writer_);
      return written ? writer_->Sync(mark) : written;
    });
    bytes_.store(writer_->bytes(), std::memory_order_relaxed);
    dropping_.fetch_sub(dropped, std::memory_order_release);
    written_.store(writer_->written_bytes(), std::memory_order_relaxed);
    syncs_.store(writer_->syncs(), std::memory_order_relaxed);
    lock.lock();
    status_ = std::move(status);
    if (status_) synced_ = writer_->durable();
    const bool failed = !status_;
    lock.unlock();
    wake_();
    if (failed) return;
    lock.lock();
    if (queue_.empty() && !stop_) {
      lock.unlock();
      Status prepared = Guarded([&] { return writer_->Prepare(); });
      lock.lock();
      if (!prepared) {
        status_ = std::move(prepared);
        lock.unlock();
        return wake_();
      }
    }
    more_.wait_for(lock, kCommitPause, [this] { return stop_ || queue_.bytes() >= kCommitBytes; });
  }
}

}  // namespace tarn::server
