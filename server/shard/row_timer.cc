#include "server/shard/row_timer.h"

#include <algorithm>
#include <limits>

#include "core/limits.h"

namespace tarn::server {

namespace {

constexpr TimeUs kTimePeriodUs = 1'000'000;
constexpr TimeUs kSweepPauseUs = 1'000;  // between two slices: messages go first
constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max();

}  // namespace

// The only place where the time of day enters the state.
void RowTimer::SetTime(TimeUs now) {
  if (now < next_time_ || !rows_->expiry().counts_seconds()) return;
  next_time_ = now + kTimePeriodUs;
  const TimeUs unix_us = std::max<TimeUs>(0, unix_us_ ? unix_us_(now) : now);
  const auto seconds = static_cast<std::uint64_t>(unix_us / 1'000'000);
  if (seconds <= rows_->expiry().seconds().value_or(0)) return;
  outbox_->Append(LoggedTime{seconds});
  rows_->expiry().AdvanceSeconds(seconds);
}

void RowTimer::OnTimer(TimeUs now) {
  SetTime(now);
  if (now < next_sweep_ || !rows_->expiry().sweeping()) return;
  next_sweep_ = now + kSweepPauseUs;
  rows_->expiry().Sweep(limits::kSweepSliceRows);
}

TimeUs RowTimer::NextTimer() const {
  const Expiry& expiry = rows_->expiry();
  return std::min(expiry.sweeping() ? next_sweep_ : kNever, expiry.counts_seconds() ? next_time_ : kNever);
}

}  // namespace tarn::server
