// Keeps the state of a run with durability "log" on disk: writes each state that a step leaves, holds back what may be
// sent only behind it, tries again after a failure, and removes the state once the run is over (rule G1). Runs without
// a log have none.
//
//   if (keeper.active()) {
//     keeper.Hold(revision, sent, out);                            // at the end of each step
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
  // durable: the run has a log. slow_us: a write that takes longer is warned of. Store and notes outlive it.
  StateKeeper(bool durable, TimeUs slow_us, SchedulerStore* store, Notes* notes);

  // Whether there is a state to keep: the run has a log and is not over.
  bool active() const { return durable_ && !over_; }
  // A step has put messages into `out` behind the first `sent`, and has left a state of this revision.
  void Hold(std::uint64_t revision, std::size_t sent, Outbox* out) { gate_.Pass(revision, sent, out); }
  bool MayWrite(TimeUs now) const { return gate_.MayBegin(now); }
  void Write(const SchedulerState& state, TimeUs now);
  void WarnIfSlow(TimeUs now);
  // The state as it is now is on disk.
  bool written() const { return gate_.durable(); }

  // The run ends: only answers to tools are of use from now on.
  void RunEnds() { gate_.End(); }
  // Nobody will continue from the state.
  void Remove();

  // A write has ended well: what waited for it is put into `out`. False: it was not the one under way.
  bool OnWritten(std::uint64_t number, Outbox* out) { return gate_.OnWritten(number, out); }
  // A write has failed. False: as above.
  bool OnFailed(std::uint64_t number, TimeUs now) { return gate_.OnFailed(number, now); }
  // After OnFailed: the error with which the run has to end, or nothing: a warning is in the log, and the state is
  // written again. `ends`: the run ends anyway.
  std::optional<Error> JudgeFailure(const Error& error, bool ends);

 private:
  bool durable_, over_ = false;
  TimeUs slow_us_;
  SchedulerStore* store_;
  Notes* notes_;
  StateGate gate_;
  TimeUs next_slow_ = 0;  // when a write that is still under way is warned of again
};

}  // namespace tarn::scheduler
