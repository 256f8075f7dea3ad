#include "server/shard/stop_notice.h"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::server {

namespace {

constexpr TimeUs kPeriodUs = 1'000'000;
// Regular sends before the shard ends: the first may be lost, and jumps in time may cause early ones.
constexpr std::uint32_t kSentMin = 3;

}  // namespace

void StopNotice::Stop(ErrorCode code, std::string reason) {
  if (stopped_) return;
  stopped_ = true;
  stopped_at_ = step_->now();
  reason_ = {code, std::move(reason)};
  SendReason();
}

void StopNotice::Stop(const Error& error) {
  Stop(error.code, fmt::format("shard {}: {}", step_->shard().value, error.message));
}

// Sets the next time first, because sending may run out of memory.
void StopNotice::SendReason() {
  const TimeUs now = step_->now();
  const bool in_time = next_send_ == 0 || now - next_send_ < kPeriodUs;
  next_send_ = now + kPeriodUs;
  if (in_time) ++sent_in_time_;
  step_->Send(kSchedulerPeer, reason_);
}

void StopNotice::OnShutdown(const Shutdown& shutdown) {
  if (!stopped_) reason_ = shutdown;
  stopped_ = ended_ = true;
  step_->Send(kSchedulerPeer, Shutdown{});
}

void StopNotice::OnTimer(TimeUs lease_us) {
  if (step_->now() - stopped_at_ >= lease_us && sent_in_time_ >= kSentMin)
    ended_ = true;
  else if (step_->now() >= next_send_)
    SendReason();
}

TimeUs StopNotice::NextTimer(TimeUs lease_us) const {
  if (sent_in_time_ < kSentMin) return next_send_;
  return std::min(next_send_, stopped_at_ + lease_us);
}

}  // namespace tarn::server
