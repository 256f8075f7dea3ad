// Writes the mark of a log: the newest record that was durable when the mark was written (server/log/log_format.h).
// Blocks on the disk. Not thread-safe.
#pragma once

#include <memory>
#include <utility>

#include "core/error.h"
#include "server/log/file_ops.h"
#include "server/log/log_format.h"

namespace tarn::server {

class LogMark {
 public:
  LogMark(std::unique_ptr<LogFile> file, const LogIdentity& identity) : file_(std::move(file)), identity_(identity) {}

  // Reserves the space of a new file.
  Status Reserve();
  // `sync`: the mark is durable on return.
  Status Write(LogSequence durable, bool sync);

 private:
  std::unique_ptr<LogFile> file_;
  LogIdentity identity_;
  std::uint64_t slot_ = 0;  // page that is written next
};

}  // namespace tarn::server
