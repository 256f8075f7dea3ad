// Reads the log of one shard, and tells what may be missing from what must not be:
//
//   a torn tail   a bad batch at the very end, nothing good behind it, and the mark not beyond: it was never durable,
//                 and is left out
//   damage        a bad batch with a good one behind it, records that the mark or the caller knows to be durable and
//                 that are not there, a segment that is missing or stands under another's name: kCorrupt
//   not ours      another job's, run's or shard's log: kWrongJob; a newer format: kUnsupported
//
// Segments before the one that is asked for are not needed, whatever is wrong with them. Every error names the file,
// the offset and what was expected. Nothing that fails its checksum is handed out.
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
  std::uint64_t bytes = 0;  // used
};

// Where a log ends, and is to be continued.
struct LogTail {
  // Oldest first, also those before the one that was read first: what they hold, and whether that is damaged, was not
  // looked at. A damaged header leaves their cut at ShardLog::kContinues.
  std::vector<LogSegment> segments;
  std::uint64_t next_number = 1;
  LogSequence last;               // handed out
  std::vector<std::string> torn;  // names of segments that hold nothing durable; to be removed
  // Of the last segment, what may not be durable though it was read: its batches from this offset on, the first of
  // them with this record; kLogPage: its header too. Nothing: all of it was durable.
  struct Unproven {
    std::uint64_t offset = 0;
    LogSequence first;
  };
  std::optional<Unproven> unproven;
};

// As ShardLog::Recover.
Expected<LogTail> ReadLog(FileOps* files, const std::string& directory, const LogIdentity& identity, CheckpointId from,
                          LogSequence at_least, LogSink& sink);

// The batch of this segment at an offset of its file of `size` bytes, its header and checksum checked. kCorrupt: there
// is none.
struct LogBatch {
  BatchHeader header;
  std::vector<std::byte> bytes;  // with its header
};
Expected<LogBatch> ReadBatch(LogFile* file, const std::string& path, std::uint64_t size, std::uint64_t segment,
                             std::uint64_t offset);

// The records of one batch, checked: header and checksum are right. An error names no file. `bytes`: the batch with
// its header, as long as the header says or longer.
Expected<std::vector<LogRecord>> DecodeBatch(std::span<const std::byte> bytes);

}  // namespace tarn::server
