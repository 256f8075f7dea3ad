// Rows that expire (rules R4 to R7): the time is told to the rows, and what has expired is taken away in slices.
#include <algorithm>
#include <limits>

#include "core/limits.h"
#include "server/shard/shard_impl.h"

namespace tarn::server {

namespace {

constexpr TimeUs kTimePeriodUs = 1'000'000;
constexpr TimeUs kSweepPauseUs = 1'000;  // between two slices: messages go first
constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max();

}  // namespace

// The one place where the time of day becomes part of the state.
void Shard::Impl::TellTime() {
  if (now_ < next_time_ || !rows_->expiry().counts_seconds()) return;
  next_time_ = now_ + kTimePeriodUs;
  const TimeUs unix_us = std::max<TimeUs>(0, now_ + options_.unix_us_at_zero);
  const auto seconds = static_cast<std::uint64_t>(unix_us / 1'000'000);
  if (seconds <= rows_->expiry().seconds().value_or(0)) return;
  if (logging_) Log(EncodeRecord(LoggedTime{seconds}));
  rows_->expiry().AdvanceSeconds(seconds);
}

void Shard::Impl::ContinueLives() {
  TellTime();
  if (now_ < next_sweep_ || !rows_->expiry().sweeping()) return;
  next_sweep_ = now_ + kSweepPauseUs;
  rows_->expiry().Sweep(limits::kSweepSliceRows);
}

TimeUs Shard::Impl::NextLives() const {
  return std::min(rows_->expiry().sweeping() ? next_sweep_ : kNever, rows_->expiry().counts_seconds() ? next_time_ : kNever);
}

}  // namespace tarn::server
