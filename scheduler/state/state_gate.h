// Persist, then send (rule G1): delays the scheduler's messages until the state that they depend on is durable.
// Heartbeats are still answered. States are written one at a time; changes during a write go into the next state. This
// class performs no I/O; StateKeeper starts the writes.
//
//   gate.HoldBack(revision, sent, out);                   // at the end of each step
//   if (gate.MayBegin(now)) store->WriteState(gate.Begin(version, now), Capture());
//   gate.OnWritten(number, out);                          // releases what waited for it
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <tuple>

#include "core/message.h"

namespace tarn::scheduler {

class StateGate {
 public:
  // Number of consecutive failed writes after which the run ends, and the pause between them.
  static constexpr int kTriesMax = 3;
  static constexpr TimeUs kPauseUs = 10'000'000;

  // Call it at the end of each step. `revision`: of the state after the step. `sent`: number of messages in `out`
  // before the step. Holds back the messages of the step that depend on a state which is not durable. Keeps the newest
  // of each kind per node, at most limits::kHeldMessagesMax in all.
  void HoldBack(std::uint64_t revision, std::size_t sent, Outbox* out);
  // The run ends: Shutdowns are not delayed, and all other messages except answers to tools are dropped.
  void End();

  // Whether the state must be written now.
  bool MayBegin(TimeUs now) const { return !writing() && !durable() && now >= not_before_ && failures_ < kTriesMax; }
  // Begins a write of the state with a view of this version. Returns the number of the write.
  std::uint64_t Begin(ViewVersion version, TimeUs now);
  // OnWritten: the write with this number has succeeded; appends the messages that waited for it to `out`. OnFailed: it
  // has failed; its messages wait for the next write. Both return false if it is not the current write.
  bool OnWritten(std::uint64_t number, Outbox* out);
  bool OnFailed(std::uint64_t number, TimeUs now);

  bool durable() const { return durable_ == newest_; }  // the current state is durable
  bool writing() const { return writing_ != 0; }
  TimeUs since() const { return since_; }     // start of the current write
  int failures() const { return failures_; }  // consecutive ones
  std::size_t held() const { return waiting_.size() + leaving_.size(); }

 private:
  // A node, a kind of message and, for answers that do not replace each other, their subject.
  using Slot = std::tuple<Peer, std::size_t, std::uint64_t>;
  using Held = std::map<Slot, Outgoing>;

  bool MayLeave(const Body& body) const;
  void HoldOne(Outgoing outgoing);

  std::uint64_t revision_ = 0;                            // of the newest state
  std::uint64_t newest_ = 0, durable_ = 0, writing_ = 0;  // numbers of states from 1; 0: none
  ViewVersion durable_version_, writing_version_;
  bool ending_ = false;
  int failures_ = 0;
  TimeUs not_before_ = 0, since_ = 0;
  Held waiting_, leaving_;  // for the next write, and for the current one
};

}  // namespace tarn::scheduler
