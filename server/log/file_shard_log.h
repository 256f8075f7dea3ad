// The ShardLog of a real run: a folder of files, written by a thread of its own. While a sync is under way, records
// gather; the next sync makes all of them durable at once (group commit).
//
//   FileShardLog log(files, run_dir + "/log/shard-0", [&] { transport.Wake(); });
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "server/log/file_ops.h"
#include "server/log/log_queue.h"
#include "server/log/log_writer.h"
#include "server/log/shard_log.h"

namespace tarn::server {

class FileShardLog final : public ShardLog {
 public:
  // `wake` is called on the log's thread when TakeSynced has news.
  FileShardLog(std::unique_ptr<FileOps> files, std::string directory, std::function<void()> wake,
               LogWriterOptions options = {});
  // What was appended and is not durable yet is made so, unless an error came before.
  ~FileShardLog() override;

  Status Open(const LogIdentity& identity) override;
  Status Recover(const LogIdentity& identity, CheckpointId from, LogSequence at_least, LogSink& sink) override;
  LogSequence BeginSegment(CheckpointId cut, LogRecord head) override;
  LogSequence Append(LogRecord record) override;
  void DropBefore(CheckpointId cut) override;
  Expected<LogSequence> TakeSynced() override;
  std::uint64_t bytes() const override {
    return dropping_.load(std::memory_order_acquire) != 0 ? 0 : bytes_.load(std::memory_order_relaxed);
  }
  // Since it was made, for metrics: bytes written into segments, and syncs.
  std::uint64_t written_bytes() const { return written_.load(std::memory_order_relaxed); }
  std::uint64_t syncs() const { return syncs_.load(std::memory_order_relaxed); }

 private:
  Status LockDirectory();
  Status Start(const LogIdentity& identity, LogTail tail, bool new_log);
  void Run();
  template <typename Work>
  static Status Guarded(Work work);

  std::unique_ptr<FileOps> files_;
  std::string directory_;
  std::function<void()> wake_;
  LogWriterOptions options_;
  std::unique_ptr<LogLock> lock_;
  std::optional<LogWriter> writer_;  // the thread's, once it runs
  std::atomic<std::uint64_t> bytes_{0}, written_{0}, syncs_{0};
  std::atomic<std::uint32_t> dropping_{0};  // calls of DropBefore that are not done

  std::mutex mutex_;
  std::condition_variable more_;
  LogQueue queue_;
  bool stop_ = false;
  LogSequence synced_;
  Status status_;
  std::thread thread_;
};

}  // namespace tarn::server
