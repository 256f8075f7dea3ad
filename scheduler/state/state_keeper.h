// Stores the state of a run with durability "log" on disk (rule G1): writes it after steps that change it, delays the
// messages that depend on it, retries after failures, and removes the state when the run ends. Other runs have no
// state.
//
//   if (keeper.active()) {
//     keeper.HoldBack(revision, sent, out);                        // at the end of each step
//     if (keeper.MayWrite(now)) keeper.Write(MakeState(), now);
//   }
//   keeper.OnWritten(written, out);                                // the store has ended a write
#pragma once

#include <cstdint>
#include <optional>

#include "core/error.h"
#include "core/message.h"
#include "scheduler/progress/notes.h"
#include "scheduler/state/state.h"
#include "scheduler/state/state_gate.h"
#include "scheduler/state/store.h"

namespace tarn::scheduler {

class StateKeeper {
 public:
  // `has_log`: the run has a log. `slow_us`: writes that take longer cause a warning. Store and notes outlive this
  // object.
  StateKeeper(bool has_log, TimeUs slow_us, SchedulerStore* store, Notes* notes);

  // Whether there is a state: the run has a log and has not ended.
  bool active() const { return has_log_ && !over_; }
  // See StateGate::HoldBack.
  void HoldBack(std::uint64_t revision, std::size_t sent, Outbox* out) { gate_.HoldBack(revision, sent, out); }
  bool MayWrite(TimeUs now) const { return gate_.MayBegin(now); }
  void Write(const SchedulerState& state, TimeUs now);
  void WarnIfSlow(TimeUs now);
  // Whether the current state is durable.
  bool durable() const { return gate_.durable(); }

  // The run ends: see StateGate::End.
  void RunEnds() { gate_.End(); }
  // Removes the state, because no run will continue from it.
  void Remove();

  // A write has succeeded: appends the messages that waited for it to `out`. False: it is not the current write.
  bool OnWritten(std::uint64_t number, Outbox* out) { return gate_.OnWritten(number, out); }
  // A write has failed. False: it is not the current write.
  bool OnFailed(std::uint64_t number, TimeUs now) { return gate_.OnFailed(number, now); }
  // After OnFailed: the error with which the run must end; nullopt: the state is written again, and a warning is in the
  // log. `ends`: the run ends anyway.
  std::optional<Error> JudgeFailure(const Error& error, bool ends);

 private:
  bool has_log_, over_ = false;
  TimeUs slow_us_;
  SchedulerStore* store_;
  Notes* notes_;
  StateGate gate_;
  TimeUs next_slow_ = 0;  // time of the next warning about the current write
};

}  // namespace tarn::scheduler
