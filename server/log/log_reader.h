// Reads the log of one shard, and distinguishes a torn tail from damage:
//
//   a torn tail   an invalid batch that no valid one follows, if all durable records precede it (those up to the mark
//                 and up to `at_least`): it was never durable, and is skipped
//   damage        an invalid batch that a valid one follows; a missing record at or before the mark or `at_least`; a
//                 segment that is missing or has another's name: kCorrupt
//   foreign       another job's, run's or shard's log: kWrongJob; another format: kUnsupported
//
// Errors in segments before the requested one are ignored, except those of foreign logs. Every error names the file or
// the directory and what was expected, and those about contents also the offset. Data whose checksum is wrong is never
// returned.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "server/log/file_ops.h"
#include "server/log/log_format.h"
#include "server/log/shard_log.h"

namespace tarn::server {

struct LogSegment {
  std::uint64_t number = 0;
  CheckpointId cut;
  std::uint64_t bytes = 0;  // up to the end of the last batch; in LogTail, of a segment that was not read: of the file
};

// The result of ReadLog, from which a LogWriter continues the log.
struct LogTail {
  // Oldest first, including the segments before the first one read, whose contents are not checked. For a damaged
  // header the cut is ShardLog::kContinues.
  std::vector<LogSegment> segments;
  std::uint64_t next_number = 1;
  LogSequence last;               // the last record returned
  std::vector<std::string> torn;  // names of segments without durable contents; the caller removes them
  // The batches of the last segment that were read but may not be durable. Nullopt: the whole segment was durable.
  struct Unproven {
    std::uint64_t offset = 0;  // of the first such batch; kLogPage: the segment's header may not be durable either
    LogSequence first;         // the first record of this batch
  };
  std::optional<Unproven> unproven;
};

// See ShardLog::Recover.
Expected<LogTail> ReadLog(FileOps* files, const std::string& directory, const LogIdentity& identity, CheckpointId from,
                          LogSequence at_least, LogSink& sink);

struct LogBatch {
  BatchHeader header;
  std::vector<std::byte> bytes;  // with its header
};
// Reads the batch at an offset of a segment's file of `size` bytes, and checks its header and checksum. kCorrupt: there
// is no valid batch.
Expected<LogBatch> ReadBatch(LogFile* file, const std::string& path, std::uint64_t size, std::uint64_t segment,
                             std::uint64_t offset);

// Decodes the records of one batch. Does not check the checksum; ReadBatch does. kCorrupt: the header or the sizes of
// the records are invalid; the message names no file. `bytes`: the batch with its header; may be longer than the batch.
Expected<std::vector<LogRecord>> DecodeBatch(std::span<const std::byte> bytes);

}  // namespace tarn::server
