// Writes the segments of one shard's log and its mark (server/log/log_format.h). Blocks; knows no thread. Not
// thread-safe. After an error nothing may be called but the destructor: what was not synced may or may not be there.
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
  // A segment's place on the disk is reserved in such steps: a sync then has no new length to write. A disk that has
  // less left is taken as it is needed.
  std::uint64_t allocate_bytes = std::uint64_t{64} << 20;
  // And is prepared (LogFile::Prepare) in such steps, so far ahead, if there is time.
  std::uint64_t prepare_bytes = std::uint64_t{4} << 20;
  std::uint64_t prepare_ahead_bytes = std::uint64_t{16} << 20;
};

class LogWriter {
 public:
  // `files` outlives it; `tail`: what a reader found, or nothing of a new log.
  LogWriter(FileOps* files, std::string directory, const LogIdentity& identity, LogTail tail,
            LogWriterOptions options = {});
  ~LogWriter();

  // Before anything else: makes the mark of a new log, durable, or takes that of an old one and makes what was read of
  // it durable: what may not be (LogTail::unproven) is written again, into a new file.
  Status Start(bool new_log);
  // Makes what was written durable, and begins a segment whose first record has the sequence last() + 1.
  Status BeginSegment(CheckpointId cut);
  // Writes the records, in batches, durable before the next but for the last one. There is a segment.
  Status Write(std::span<const LogRecord> records);
  // All that was written is durable, and the mark says so. `sync_mark`: so is the mark.
  Status Sync(bool sync_mark);
  // For when nothing waits to be written: prepares a part of what was reserved, if what is prepared runs short. A
  // segment with little in it gets as much again.
  Status Prepare();
  // Gives back what was reserved behind the last record.
  Status Trim();
  // Removes the segments before the one that began at `cut`; none if there is no such. What must be kept is durable.
  Status DropBefore(CheckpointId cut);

  LogSequence last() const { return last_; }  // written
  LogSequence durable() const { return durable_; }
  std::uint64_t bytes() const;  // of the segments that are kept
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
  std::vector<LogSegment> segments_;  // oldest first; the last is written to
  std::unique_ptr<LogFile> file_, mark_;
  std::uint64_t next_number_;
  std::uint64_t end_ = 0, allocated_ = 0, prepared_ = 0;  // of the file that is written to
  LogSequence last_, durable_;
  std::optional<LogTail::Unproven> unproven_;
  bool names_changed_ = false;  // in the directory, and not durable yet
  int mark_slot_ = 0;
  std::uint64_t written_ = 0, syncs_ = 0;
};

}  // namespace tarn::server
