// Writes the segments of one shard's log and its mark (server/log/log_format.h). Blocks on the disk. Not thread-safe.
// After an error only the destructor may be called; it is unknown which unsynced records are on the disk.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "server/log/file_ops.h"
#include "server/log/log_format.h"
#include "server/log/log_reader.h"
#include "server/log/shard_log.h"

namespace tarn::server {

struct LogWriterOptions {
  // Disk space of a segment is reserved in steps of this size, so that syncs need not write a new file length. If the
  // disk has less space, it is reserved as needed.
  std::uint64_t allocate_bytes = std::uint64_t{64} << 20;
  // Reserved space is prepared (LogFile::Prepare) in steps of this size when the writer is idle.
  std::uint64_t prepare_bytes = std::uint64_t{4} << 20;
  std::uint64_t prepare_ahead_bytes = std::uint64_t{16} << 20;
};

class LogWriter {
 public:
  // `files` outlives the writer. `tail`: the result of a reader; empty for a new log.
  LogWriter(FileOps* files, std::string directory, const LogIdentity& identity, LogTail tail,
            LogWriterOptions options = {});
  ~LogWriter();

  // Must be called first. Creates the durable mark of a new log. For an existing log, reads its mark and writes records
  // that may not be durable (LogTail::unproven) again, to a new file.
  Status Start(bool new_log);
  // Makes all written records durable, and begins a segment whose first record has the sequence last() + 1.
  Status BeginSegment(CheckpointId cut);
  // Writes the records in batches. All batches but the last are durable on return. A segment must have begun.
  Status Write(std::span<const LogRecord> records);
  // Makes all written records durable and writes the mark. `sync_mark`: also makes the mark durable.
  Status Sync(bool sync_mark);
  // To be called when idle: prepares some of the reserved space if little prepared space is left. A small segment is
  // prepared up to twice its size.
  Status Prepare();
  // Frees the space reserved after the last record.
  Status Trim();
  // Removes the segments before the one that began at `cut`; none if there is no such segment. The remaining records
  // must be durable.
  Status DropBefore(CheckpointId cut);

  LogSequence last() const { return last_; }  // the last one written
  LogSequence durable() const { return durable_; }
  std::uint64_t bytes() const;  // of all segments that exist
  std::uint64_t written_bytes() const { return written_; }
  std::uint64_t syncs() const { return syncs_; }

 private:
  std::string Path(const std::string& name) const { return directory_ + "/" + name; }
  Status WriteBatch(std::span<const LogRecord> records);
  Status Rewrite(const LogTail::Unproven& from);
  Status CopyBatches(const LogSegment& segment, std::uint64_t from);
  Status Reserve(std::uint64_t bytes, std::uint64_t least);
  Status WriteHeader(const SegmentHeader& header);
  Status WriteMark(bool sync);

  FileOps* files_;
  std::string directory_;
  LogIdentity identity_;
  LogWriterOptions options_;
  std::vector<LogSegment> segments_;  // oldest first; the last one is being written
  std::unique_ptr<LogFile> file_, mark_;
  std::uint64_t next_number_;
  std::uint64_t end_ = 0, allocated_ = 0, prepared_ = 0;  // of the current file
  LogSequence last_, durable_;
  std::optional<LogTail::Unproven> unproven_;
  bool names_changed_ = false;  // names in the directory are not durable yet
  int mark_slot_ = 0;
  std::uint64_t written_ = 0, syncs_ = 0;
};

}  // namespace tarn::server
