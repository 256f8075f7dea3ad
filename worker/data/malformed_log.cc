#include "worker/data/malformed_log.h"

#include <fmt/format.h>

namespace tarn::worker {

MalformedLog::MalformedLog(std::string file, std::uint32_t lines_max, std::function<void(const std::string&)> report)
    : file_(std::move(file)), lines_max_(lines_max), report_(std::move(report)) {}

Status MalformedLog::Add(std::uint64_t row, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (rows_.size() <= lines_max_ && rows_.insert(row).second && messages_.size() < kReported) {
    messages_.push_back(fmt::format("{}:{}: {}", file_, row + 1, why));
    if (report_) report_(messages_.back());
  }
  return rows_.size() <= lines_max_ ? Status{} : TooMany();
}

Status MalformedLog::AddFirst(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (rows_.insert(0).second) messages_.insert(messages_.begin(), fmt::format("{}:1: {}", file_, why));
  return TooMany();
}

Status MalformedLog::TooMany() const {
  std::string message = fmt::format("{}: {} malformed line{}, more than data.malformed_max = {}:", file_, rows_.size(),
                                    rows_.size() == 1 ? "" : "s", lines_max_);
  for (const std::string& line : messages_) message += "\n  " + line;
  return Fail(ErrorCode::kMalformed, std::move(message));
}

std::uint64_t MalformedLog::count() const {
  const std::lock_guard lock(mutex_);
  return rows_.size();
}

std::vector<std::string> MalformedLog::messages() const {
  const std::lock_guard lock(mutex_);
  return messages_;
}

}  // namespace tarn::worker
