// metrics.jsonl: one JSON object a second and role.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/background.h"
#include "core/error.h"
#include "core/log.h"

namespace tarn {

// A file of JSON lines to which several processes may append at once: every line is one write.
class MetricsFile {
 public:
  // Appends to the file, makes it if it is not there. kIo, naming the path.
  static Expected<MetricsFile> Open(const std::string& path);

  MetricsFile(MetricsFile&& other) noexcept;
  MetricsFile& operator=(MetricsFile&& other) noexcept;
  ~MetricsFile();

  // Writes the line and its end. kIo.
  Status Append(std::string_view line);

 private:
  MetricsFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = -1;
  std::string path_;
};

// The same for those who must not wait for a disk: a thread of its own writes the lines. The run is worth more than its
// metrics: what cannot be written is logged, and what finds kWaitingMax calls before it is dropped. Any thread.
class MetricsWriter {
 public:
  static constexpr std::size_t kWaitingMax = 64;

  static Expected<std::unique_ptr<MetricsWriter>> Open(const std::string& path);
  explicit MetricsWriter(MetricsFile file) : file_(std::move(file)) {}

  // Returns at once.
  void Append(std::vector<std::string> lines);

 private:
  MetricsFile file_;
  LogLimiter limiter_;
  Background disk_{"metrics", kWaitingMax};
};

}  // namespace tarn
