// A ShardLog over files in memory. A test or a simulated fleet determines when appended records are written and when
// they become durable, and can simulate a power loss in between. Format and code are those of a real run. Not
// thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/log/log_queue.h"
#include "server/log/log_writer.h"
#include "server/log/shard_log.h"
#include "sim/disks/memory_files.h"

namespace tarn::server {

class MemoryShardLog final : public ShardLog {
 public:
  // `disk` outlives it. `files`: operations on that disk, which may fail; the plain ones if null.
  MemoryShardLog(MemoryDisk* disk, std::string directory, std::unique_ptr<FileOps> files = nullptr);

  Status Open(const LogIdentity& identity) override;
  Status Recover(const LogIdentity& identity, CheckpointId from, LogSequence at_least, LogSink& sink) override;
  LogSequence BeginSegment(CheckpointId cut, LogRecord head) override;
  LogSequence Append(LogRecord record) override { return queue_.Push(std::move(record)); }
  void DropBefore(CheckpointId cut) override { queue_.PushDrop(cut); }
  Expected<LogSequence> TakeSynced() override;
  std::uint64_t bytes() const override { return writer_ && !queue_.dropping() ? writer_->bytes() : 0; }

  LogSequence appended() const { return queue_.last(); }
  // The last record that Recover passed to its sink.
  LogSequence recovered() const { return recovered_; }
  // Whether something was appended that is not durable.
  bool dirty() const { return status_ && writer_ && (!queue_.empty() || writer_->last() != writer_->durable()); }
  // Writes the appended records. A power loss after this may keep, tear or lose them.
  void Write();
  // Makes the written records durable. `sync_mark`: also the mark (LogWriter::Sync).
  void Sync(bool sync_mark);
  void Commit() {
    Write();
    Sync(true);
  }

 private:
  Status Start(const LogIdentity& identity, LogTail tail, bool new_log);

  std::unique_ptr<FileOps> files_;
  std::string directory_;
  std::unique_ptr<LogLock> lock_;
  std::optional<LogWriter> writer_;
  LogQueue queue_;
  LogSequence recovered_;
  Status status_;
};

}  // namespace tarn::server
