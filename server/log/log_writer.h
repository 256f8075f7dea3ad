// Writes the segments of one shard's log and its mark (server/log/log_format.h). Blocks on the disk. Not thread-safe.
// After an error only the destructor may be called; it is unknown which unsynced records are on the disk.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "server/log/file_ops.h"
#include "server/log/log_format.h"
#include "server/log/log_mark.h"
#include "server/log/log_reader.h"
#include "server/log/segment_file.h"
#include "server/log/shard_log.h"

namespace tarn::server {

class LogWriter {
 public:
  // `files` outlives the writer. `tail`: the result of a reader; empty for a new log.
  LogWriter(FileOps* files, std::string directory, const LogIdentity& identity, LogTail tail,
            SegmentFileOptions options = {});
  ~LogWriter();

  // Must be called first. For a new log, creates the mark and makes it durable. For an existing log, opens its mark and
  // writes the records that may not be durable (LogTail::unproven) again, to a new file.
  Status Start(bool new_log);
  // Makes all written records durable, and begins a segment whose first record has the sequence last() + 1.
  Status BeginSegment(CheckpointId cut);
  // Writes the records in batches. All batches but the last are durable on return. A segment must have begun.
  Status Write(std::span<const LogRecord> records);
  // Makes all written records durable and writes the mark. `sync_mark`: also makes the mark durable.
  Status Sync(bool sync_mark);
  // SegmentFile::Prepare and Trim for the current segment; do nothing before BeginSegment.
  Status Prepare() { return file_ ? file_->Prepare() : Status(); }
  Status Trim() { return file_ ? file_->Trim() : Status(); }
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

  FileOps* files_;
  std::string directory_;
  LogIdentity identity_;
  SegmentFileOptions options_;
  std::vector<LogSegment> segments_;  // oldest first; the last one is being written
  std::optional<SegmentFile> file_;   // of the last segment; none before BeginSegment
  std::optional<LogMark> mark_;       // from Start on
  std::uint64_t next_number_;
  LogSequence last_, durable_;
  std::optional<LogTail::Unproven> unproven_;
  bool names_changed_ = false;  // names in the directory are not durable yet
  std::uint64_t written_ = 0, syncs_ = 0;
};

}  // namespace tarn::server
