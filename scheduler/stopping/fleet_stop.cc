#include "scheduler/stopping/fleet_stop.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace tarn::scheduler {

void FleetStop::Begin(Shutdown reason, std::string phase, std::map<Incarnation, Peer> peers, TimeUs now) {
  reason_ = std::move(reason);
  phase_ = std::move(phase);
  peers_ = std::move(peers);
  since_ = last_contact_ = now;
}

bool FleetStop::OnMessage(Peer from, const Message& message, const Mailer& mail) {
  const bool is_tool = message.sender.role == Role::kScheduler;
  // A node that reports its own failure has not received the stop yet (rule S2).
  const auto* shutdown = std::get_if<Shutdown>(&message.body);
  if (shutdown == nullptr || (shutdown->code != ErrorCode::kOk && !is_tool))
    mail.Send(from, *reason_);
  else if (!is_tool)
    peers_.erase(message.sender.incarnation);
  over_ |= peers_.empty();
  return over_;
}

bool FleetStop::Repeat(TimeUs now, const Mailer& mail) {
  const bool quiet = now - last_contact_ >= kQuietPeriods * heartbeat_us_;
  over_ |= peers_.empty() || quiet || now - since_ >= kPeriodsMax * heartbeat_us_;
  if (over_ || (sent_ != 0 && now - sent_ < heartbeat_us_)) return over_;
  sent_ = std::max<TimeUs>(now, 1);
  for (const auto& [id, peer] : peers_) mail.Send(peer, *reason_);
  return false;
}

}  // namespace tarn::scheduler
