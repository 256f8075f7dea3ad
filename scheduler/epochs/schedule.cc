#include "scheduler/epochs/schedule.h"

#include <cmath>

namespace tarn::scheduler {

void Schedule::BeginScoring(std::uint32_t epoch, const Scores& train) {
  scoring_ = {};
  scoring_.epoch = epoch;
  scoring_.train = train;
}

std::optional<std::uint32_t> Schedule::Best() const {
  for (std::size_t i = finished_.size(); i > 0; --i)
    if (finished_[i - 1].best) return static_cast<std::uint32_t>(i - 1);
  return std::nullopt;
}

bool Schedule::IsBest() const {
  if (!scoring_.valid) return true;
  const auto best = Best();
  if (best && finished_[*best].valid) return scoring_.valid->log_loss < finished_[*best].valid->log_loss;
  return !std::isnan(scoring_.valid->log_loss);
}

void Schedule::EndScoring() {
  scoring_.best = IsBest();
  finished_.push_back(scoring_);
}

bool Schedule::HasNextEpoch() const {
  if (finished_.size() >= epochs_max_) return false;
  if (patience_ == 0 || finished_.empty() || !finished_.back().valid) return true;
  const auto best = Best();
  const std::size_t epochs_since_best = best ? finished_.size() - 1 - *best : finished_.size();
  return epochs_since_best < patience_;
}

}  // namespace tarn::scheduler
