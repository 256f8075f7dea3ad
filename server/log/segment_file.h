// The file of the segment that is being written (server/log/log_format.h): its end, and the disk space reserved beyond
// it. Blocks on the disk. Not thread-safe. After an error only the destructor may be called.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "core/error.h"
#include "server/log/file_ops.h"
#include "server/log/log_format.h"
#include "server/log/shard_log.h"

namespace tarn::server {

struct SegmentFileOptions {
  // Disk space of a segment is reserved in steps of this size, so that syncs need not write a new file length. If the
  // disk has less space, it is reserved as needed.
  std::uint64_t allocate_bytes = std::uint64_t{64} << 20;
  // Reserved space is prepared (LogFile::WriteZeros) in steps of this size when the writer is idle, unless
  // prepare_ahead_bytes are prepared already.
  std::uint64_t prepare_bytes = std::uint64_t{4} << 20;
  std::uint64_t prepare_ahead_bytes = std::uint64_t{16} << 20;
};

class SegmentFile {
 public:
  // `file` is new and empty.
  SegmentFile(std::unique_ptr<LogFile> file, const SegmentFileOptions& options)
      : file_(std::move(file)), options_(options) {}

  // Must be called first. Writes the header, and reserves `bytes` of disk space, or `least` on a full disk.
  Status Begin(const SegmentHeader& header, std::uint64_t bytes, std::uint64_t least);
  // Writes one batch, whose first record has the sequence `first`.
  Status Write(LogSequence first, std::span<const LogRecord> records);
  Status Sync() { return file_->Sync(); }
  // Call it when idle. Prepares one step of the reserved space, unless min(prepare_ahead_bytes, end()) bytes are
  // prepared beyond the end.
  Status Prepare();
  // Frees the space reserved after the last record.
  Status Trim() { return file_->Truncate(end_); }

  std::uint64_t end() const { return end_; }  // offset of the next batch

 private:
  Status Reserve(std::uint64_t bytes, std::uint64_t least);
  Status ReserveFor(std::uint64_t bytes);

  std::unique_ptr<LogFile> file_;
  SegmentFileOptions options_;
  std::uint32_t number_ = 0;  // low half of the segment's number
  std::uint64_t end_ = 0, allocated_ = 0, prepared_ = 0;
};

}  // namespace tarn::server
