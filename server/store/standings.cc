#include "server/store/standings.h"

#include <algorithm>
#include <iterator>

namespace tarn::server {

void Verdicts::Add(Verdict verdict) {
  if (verdict.least_standing == 0) return;
  while (!verdicts_.empty() && verdicts_.back().least_standing <= verdict.least_standing) verdicts_.pop_back();
  verdicts_.push_back(verdict);
}

void Standings::Add(std::uint32_t standing, std::uint32_t step) {
  ++rows_;
  const std::uint32_t wanted = standing / step;
  // Without decay, most pushes belong to the newest class.
  if (!classes_.empty() && classes_.rbegin()->first == wanted)
    ++classes_.rbegin()->second;
  else
    ++classes_[wanted];
}

void Standings::Drop(std::uint32_t standing, std::uint32_t step) {
  const auto at = classes_.find(standing / step);
  if (at == classes_.end()) return;  // from a checkpoint with another unit of time
  --rows_;
  if (--at->second == 0) classes_.erase(at);
}

std::uint32_t Standings::Decide(std::uint32_t least, std::uint64_t rows_max, std::uint32_t step) {
  auto keep = classes_.begin();
  for (; keep != classes_.end(); ++keep) {
    const bool over = rows_max != 0 && rows_ > rows_max && std::next(keep) != classes_.end();
    if (keep->first >= least / step && !over) break;
    rows_ -= keep->second;
  }
  if (keep == classes_.begin()) return 0;
  const std::uint32_t last_expired = std::prev(keep)->first;
  classes_.erase(classes_.begin(), keep);
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>((std::uint64_t{last_expired} + 1) * step, ~std::uint32_t{0}));
}

}  // namespace tarn::server
