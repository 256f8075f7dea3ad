// Records the malformed lines of a file: counts each once, however often it is read, and reports the first few.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"

namespace tarn::worker {

// Any thread may call any function.
class MalformedLog {
 public:
  // `report` is called with the first kReported messages, while a lock is held. It may be empty.
  MalformedLog(std::string file, std::uint32_t lines_max, std::function<void(const std::string&)> report);

  static constexpr std::size_t kReported = 10;

  // Adds row `row` (line row + 1 of the file), which is malformed for the reason `why`. kMalformed, with the first
  // messages, if there are now more than lines_max malformed lines.
  Status Add(std::uint64_t row, const std::string& why);

  // Call it after Add has failed if the file's first line is malformed too: the error then names that line first.
  Status AddFirst(const std::string& why);

  std::uint64_t count() const;
  // The first messages, as "FILE:LINE: WHY".
  std::vector<std::string> messages() const;

 private:
  Status TooMany() const;

  const std::string file_;
  const std::uint32_t lines_max_;
  const std::function<void(const std::string&)> report_;
  mutable std::mutex mutex_;
  std::set<std::uint64_t> rows_;  // at most lines_max + 2
  std::vector<std::string> messages_;
};

}  // namespace tarn::worker
