// Which lines of a file were malformed: counted once each however often they are read, the first few reported.
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
  // `report` is called, under a lock, with the first kReported messages; it may be empty.
  MalformedLog(std::string file, std::uint32_t lines_max, std::function<void(const std::string&)> report);

  static constexpr std::size_t kReported = 10;

  // Row `row` (line row + 1 of the file) does not parse for reason `why`. kMalformed, with the first messages, once
  // more than lines_max lines are.
  Status Add(std::uint64_t row, const std::string& why);

  // After Add has failed, where the file's first line is malformed too: names it before the others.
  Status AddFirst(const std::string& why);

  std::uint64_t count() const;
  // The first few, as "FILE:LINE: WHY".
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
