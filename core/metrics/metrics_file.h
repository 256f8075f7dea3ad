// metrics.jsonl: one line, a JSON object, per second and process.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/disk_pool.h"
#include "core/error.h"
#include "core/log.h"

namespace tarn {

// A file of JSON lines to which several processes may append at once: every line is one write.
class MetricsFile {
 public:
  // Opens the file for appending; creates it if it does not exist. kIo (kNotFound: no such directory), naming the path.
  static Expected<MetricsFile> Open(const std::string& path);

  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&& other) noexcept;
  ~MetricsFile();

  // Writes the line and a newline. kIo; a part of the line may then be in the file.
  Status Append(std::string_view line);

 private:
  MetricsFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = -1;
  std::string path_;
};

// A MetricsFile for callers that must not block on disk I/O: a strand of a pool writes the lines. A line that cannot be
// written is dropped and logged. While kWaitingMax calls wait for the disk, the lines of further calls are dropped. Any
// thread.
class MetricsWriter {
 public:
  static constexpr std::size_t kWaitingMax = 64;

  // The pool outlives the writer. Errors as of MetricsFile::Open.
  static Expected<std::unique_ptr<MetricsWriter>> Open(DiskPool* pool, const std::string& path);
  MetricsWriter(DiskPool* pool, MetricsFile file) : file_(std::move(file)), disk_(pool, "metrics") {}

  // Returns at once.
  void Append(std::vector<std::string> lines);

 private:
  MetricsFile file_;
  LogLimiter limiter_;
  DiskPool::Strand disk_;
};

}  // namespace tarn
