// Stops the fleet: sends every node a Shutdown with the reason, again after each heartbeat period, until each node has
// confirmed it or all have been silent for a while (rules S1, S2).
//
//   stop.Begin({ErrorCode::kOk, "done"}, "done", membership.EveryPeer(), now);
//   stop.Repeat(now, mail);                    // at once and at each timer
//   stop.OnMessage(from, message, now, mail);
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/message.h"
#include "scheduler/membership/mailer.h"

namespace tarn::scheduler {

class FleetStop {
 public:
  // How many heartbeat periods nodes may be silent, or take in all, before the scheduler does not wait any longer.
  static constexpr int kQuietPeriods = 2, kPeriodsMax = 10;

  explicit FleetStop(TimeUs heartbeat_us) : heartbeat_us_(heartbeat_us) {}

  // phase: as Progress.phase spells it. peers: of the nodes that have to stop.
  void Begin(Shutdown reason, std::string phase, std::map<Incarnation, Peer> peers, TimeUs now);
  bool begun() const { return reason_.has_value(); }
  // Every node has confirmed the stop, or is not waited for any longer.
  bool over() const { return over_; }
  const Shutdown& reason() const { return reason_ ? *reason_ : none_; }
  const std::string& phase() const { return phase_; }
  // The phase, or `running` before Begin.
  std::string PhaseOr(std::string_view running) const { return begun() ? phase_ : std::string(running); }

  // Since Begin. A message has come.
  void Hear(TimeUs now) { heard_ = now; }
  // Answers it, unless it confirms the stop. Returns over().
  bool OnMessage(Peer from, const Message& message, const Mailer& mail);
  bool Repeat(TimeUs now, const Mailer& mail);

 private:
  TimeUs heartbeat_us_;
  std::optional<Shutdown> reason_;
  Shutdown none_;
  std::string phase_;
  std::map<Incarnation, Peer> peers_;  // of nodes that have not confirmed
  bool over_ = false;
  TimeUs since_ = 0, sent_ = 0, heard_ = 0;
};

}  // namespace tarn::scheduler
