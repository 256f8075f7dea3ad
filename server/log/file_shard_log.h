// The ShardLog of a real run: a folder of files, written on a strand of a pool. Records that arrive during a sync are
// made durable by the next one, all at once (group commit). After the first error nothing more is written.
//
//   FileShardLog log(&pool, files, run_dir + "/log/shard-0", [&] { transport.Wake(); });
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/disk_pool.h"
#include "server/log/commit_queue.h"
#include "server/log/file_ops.h"
#include "server/log/log_queue.h"
#include "server/log/log_writer.h"
#include "server/log/shard_log.h"

namespace tarn::server {

class FileShardLog final : public ShardLog {
 public:
  // `wake` is called on the strand when TakeSynced has a new result. The pool outlives the log.
  FileShardLog(DiskPool* pool, std::unique_ptr<FileOps> files, std::string directory, std::function<void()> wake,
               SegmentFileOptions options = {});
  // Makes all appended records durable, unless an error occurred before.
  ~FileShardLog() override;

  Status Open(const LogIdentity& identity) override;
  Status Recover(const LogIdentity& identity, CheckpointId from, LogSequence at_least, LogSink& sink) override;
  LogSequence BeginSegment(CheckpointId cut, LogRecord head) override {
    return queue_.BeginSegment(cut, std::move(head));
  }
  LogSequence Append(LogRecord record) override { return queue_.Append(std::move(record)); }
  void DropBefore(CheckpointId cut) override;
  Expected<LogSequence> TakeSynced() override { return queue_.Synced(); }
  std::uint64_t bytes() const override {
    return dropping_.load(std::memory_order_acquire) != 0 ? 0 : bytes_.load(std::memory_order_relaxed);
  }
  // Begins to write what was appended. Call it at the end of each turn of the shard, so that the records of a turn are
  // written together. Returns at once.
  void EndTurn() { queue_.EndTurn(); }
  // Counters since construction, for metrics: bytes written to segments, and syncs.
  std::uint64_t written_bytes() const { return written_.load(std::memory_order_relaxed); }
  std::uint64_t syncs() const { return syncs_.load(std::memory_order_relaxed); }

 private:
  Status LockDirectory();
  Status Start(const LogIdentity& identity, LogTail tail, bool new_log);
  void Commit();
  void Publish(Status status);
  Status WriteAndSync(std::vector<LogQueue::Item> items);
  template <typename Work>
  static Status Guarded(Work work);

  DiskPool* pool_;
  std::unique_ptr<FileOps> files_;
  std::string directory_;
  std::function<void()> wake_;
  SegmentFileOptions options_;
  std::unique_ptr<LogLock> lock_;
  std::optional<LogWriter> writer_;                 // used only on the strand while the strand exists
  std::chrono::steady_clock::time_point mark_due_;  // the next sync from then on makes the mark durable
  std::atomic<std::uint64_t> bytes_{0}, written_{0}, syncs_{0};
  std::atomic<std::uint32_t> dropping_{0};  // calls of DropBefore in progress

  CommitQueue queue_{[this] { strand_->Post([this] { Commit(); }); }};
  std::optional<DiskPool::Strand> strand_;  // from Open or Recover on
};

}  // namespace tarn::server
