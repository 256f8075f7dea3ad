#include "sim/disks/memory_shard_log.h"

#include <utility>

#include "server/log/log_directory.h"
#include "server/log/log_reader.h"

namespace tarn::server {
namespace {

constexpr SegmentFileOptions kSmall{
    .allocate_bytes = 16 * kLogPage, .prepare_bytes = 2 * kLogPage, .prepare_ahead_bytes = 6 * kLogPage};

}  // namespace

MemoryShardLog::MemoryShardLog(MemoryDisk* disk, std::string directory, std::unique_ptr<FileOps> files)
    : files_(files ? std::move(files) : MakeMemoryFileOps(disk)), directory_(std::move(directory)) {}

Status MemoryShardLog::Open(const LogIdentity& identity) {
  auto lock = files_->Lock(directory_ + "/" + kLockName);
  if (!lock) return std::unexpected(lock.error());
  lock_ = std::move(*lock);
  TARN_RETURN_IF_ERROR(ClearForNewLog(files_.get(), directory_, identity));
  return Start(identity, {}, true);
}

Status MemoryShardLog::Recover(const LogIdentity& identity, CheckpointId from, LogSequence at_least, LogSink& sink) {
  auto lock = files_->Lock(directory_ + "/" + kLockName);
  if (!lock) return std::unexpected(lock.error());
  lock_ = std::move(*lock);
  auto tail = ReadLog(files_.get(), directory_, identity, from, at_least, sink);
  if (!tail) return std::unexpected(tail.error());
  TARN_RETURN_IF_ERROR(RemoveTorn(files_.get(), directory_, *tail));
  return Start(identity, std::move(*tail), false);
}

Status MemoryShardLog::Start(const LogIdentity& identity, LogTail tail, bool new_log) {
  recovered_ = tail.last;
  queue_.Start(tail.last);
  writer_.emplace(files_.get(), directory_, identity, std::move(tail), kSmall);
  return writer_->Start(new_log);
}

LogSequence MemoryShardLog::BeginSegment(CheckpointId cut, LogRecord head) {
  queue_.PushBegin(cut);
  return queue_.Push(std::move(head));
}

Expected<LogSequence> MemoryShardLog::TakeSynced() {
  if (!status_) return std::unexpected(status_.error());
  return writer_->durable();
}

void MemoryShardLog::Write() {
  if (status_ && !queue_.empty()) status_ = WriteItems(queue_.TakeAll(), &*writer_);
}

void MemoryShardLog::Sync(bool sync_mark) {
  if (!status_ || !dirty()) return;
  status_ = writer_->Sync(sync_mark);
  if (status_) status_ = writer_->Prepare();
}

}  // namespace tarn::server
