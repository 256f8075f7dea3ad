// Stops the fleet: sends every node a Shutdown with the reason, repeated after each heartbeat period, until every node
// has confirmed it, all have been silent for kQuietPeriods, or kPeriodsMax have passed (rules S1, S2).
//
//   stop.Begin({ErrorCode::kOk, "done"}, "done", membership.EveryPeer(), now);
//   stop.Repeat(now, mail);                    // at once and at each timer
//   stop.RecordContact(now);                   // for each message
//   stop.OnMessage(from, message, mail);
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
  // Number of heartbeat periods after which the scheduler stops waiting: for silent nodes, and in total.
  static constexpr int kQuietPeriods = 2, kPeriodsMax = 10;

  explicit FleetStop(TimeUs heartbeat_us) : heartbeat_us_(heartbeat_us) {}

  // `phase`: the value of Progress.phase. `peers`: of the nodes that must stop.
  void Begin(Shutdown reason, std::string phase, std::map<Incarnation, Peer> peers, TimeUs now);
  bool begun() const { return reason_.has_value(); }
  // Whether every node has confirmed the stop, or the wait has timed out.
  bool over() const { return over_; }
  const Shutdown& reason() const { return reason_ ? *reason_ : none_; }
  const std::string& phase() const { return phase_; }
  // The phase, or `running` before Begin.
  std::string PhaseOr(std::string_view running) const { return begun() ? phase_ : std::string(running); }

  // After Begin: records that a message was received.
  void RecordContact(TimeUs now) { last_contact_ = now; }
  // Answers the message with a Shutdown, unless it is a Shutdown that confirms the stop or comes from a tool. Returns
  // over().
  bool OnMessage(Peer from, const Message& message, const Mailer& mail);
  // Sends the Shutdown to nodes that have not confirmed it, if a heartbeat period has passed since the last time.
  // Returns over().
  bool Repeat(TimeUs now, const Mailer& mail);

 private:
  TimeUs heartbeat_us_;
  std::optional<Shutdown> reason_;
  Shutdown none_;
  std::string phase_;
  std::map<Incarnation, Peer> peers_;  // of nodes that have not confirmed
  bool over_ = false;
  TimeUs since_ = 0, sent_ = 0, last_contact_ = 0;
};

}  // namespace tarn::scheduler
