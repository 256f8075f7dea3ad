#include "server/log/file_shard_log.h"

#include <fmt/format.h>

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

// How far the durable mark may be behind durable records. After a crash of only the process the mark is exact.
constexpr std::chrono::milliseconds kMarkPeriod{500};

}  // namespace

FileShardLog::FileShardLog(DiskPool* pool, std::unique_ptr<FileOps> files, std::string directory,
                           std::function<void()> wake, SegmentFileOptions options)
    : pool_(pool),
      files_(std::move(files)),
      directory_(std::move(directory)),
      wake_(std::move(wake)),
      options_(options) {}

FileShardLog::~FileShardLog() {
  if (!strand_) return;
  (void)CatchExhaustion([&] { queue_.Stop(); });
  strand_.reset();
  if (queue_.Synced()) (void)writer_->Trim();  // errors do not matter: the records are durable
}

Status FileShardLog::LockDirectory() {
  TARN_RETURN_IF_ERROR(files_->MakeDirectory(directory_));
  // The names of the directory and of its parent must be durable too: shard-N in <run>/log, and log in <run>.
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
  writer_.emplace(files_.get(), directory_, identity, std::move(tail), options_);
  TARN_RETURN_IF_ERROR(writer_->Start(new_log));
  mark_due_ = std::chrono::steady_clock::now();
  strand_.emplace(pool_, "log");
  return {};
}

void FileShardLog::DropBefore(CheckpointId cut) {
  dropping_.fetch_add(1, std::memory_order_relaxed);
  queue_.DropBefore(cut);
}

// Exceptions on the strand fail the log, not the process.
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

// Runs on the strand until the queue is empty or the log has failed.
void FileShardLog::Commit() {
  for (auto items = queue_.Take(); !items.empty(); items = queue_.Take()) {
    Publish(WriteAndSync(std::move(items)));
    if (queue_.IsIdle())
      if (Status prepared = Guarded([&] { return writer_->Prepare(); }); !prepared) Publish(std::move(prepared));
  }
}

void FileShardLog::Publish(Status status) {
  queue_.Publish(std::move(status), writer_->durable());
  wake_();
}

Status FileShardLog::WriteAndSync(std::vector<LogQueue::Item> items) {
  const auto dropped = static_cast<std::uint32_t>(std::ranges::count_if(
      items, [](const LogQueue::Item& item) { return std::holds_alternative<LogQueue::Drop>(item); }));
  const auto now = std::chrono::steady_clock::now();
  const bool mark = now >= mark_due_;
  if (mark) mark_due_ = now + kMarkPeriod;
  Status status = Guarded([&] {
    const Status written = WriteItems(std::move(items), &*writer_);
    return written ? writer_->Sync(mark) : written;
  });
  bytes_.store(writer_->bytes(), std::memory_order_relaxed);
  dropping_.fetch_sub(dropped, std::memory_order_release);
  written_.store(writer_->written_bytes(), std::memory_order_relaxed);
  syncs_.store(writer_->syncs(), std::memory_order_relaxed);
  return status;
}

}  // namespace tarn::server
