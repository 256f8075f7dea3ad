#include "worker/runtime/reports.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <string_view>
#include <utility>

#include "core/json.h"

namespace tarn::worker {
namespace {

constexpr std::array<std::string_view, 4> kFields = {"time", "role", "rank", "clock"};

Status CheckName(const std::string& name) {
  if (name.empty()) return Fail(ErrorCode::kInvalidArgument, "report: a figure has an empty name, expected a name");
  if (std::ranges::find(kFields, name) == kFields.end()) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("report: '{}' is a field of every line, expected another name", name));
}

}  // namespace

Status Reports::Add(Clock clock, std::span<const Figure> figures, double now) {
  for (const auto& [name, value] : figures) TARN_RETURN_IF_ERROR(CheckName(name));
  if (run_dir_.empty()) return {};
  const std::lock_guard lock(mutex_);
  clock_ = clock;
  for (const auto& [name, value] : figures) {
    auto sum = std::ranges::find(sums_, name, &Sum::name);
    if (sum == sums_.end()) sum = sums_.insert(sum, Sum{name});
    sum->sum += value;
    ++sum->count;
  }
  if (written_ && now - *written_ < kLineSeconds) return {};
  written_ = now;
  return Write();
}

Status Reports::Flush() {
  const std::lock_guard lock(mutex_);
  return Write();
}

Status Reports::Write() {
  if (sums_.empty()) return {};
  if (!file_) {
    auto file = MetricsFile::Open(run_dir_ + "/metrics.jsonl");
    if (!file) return std::unexpected(file.error());
    file_ = *std::move(file);
  }
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  Json line = {{"time", double(std::chrono::duration_cast<std::chrono::microseconds>(since_1970).count()) * 1e-6},
               {"role", "program"},
               {"rank", rank_},
               {"clock", clock_.value}};
  for (const Sum& sum : std::exchange(sums_, {})) {
    const double mean = sum.sum / double(sum.count);
    line[sum.name] = std::isfinite(mean) ? Json(mean) : Json();
  }
  return file_->Append(JsonText(line));
}

}  // namespace tarn::worker
