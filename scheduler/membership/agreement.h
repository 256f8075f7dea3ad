// The fleet's agreement on a clock that no worker has passed (rule M1), for joins (M2) and checkpoints (K1, K11). The
// view opens a proposal; every live worker reports its clock; the caller puts the agreed clock into the view; when
// every shard has confirmed that view, the proposal closes.
//
//   agreement.Open(Agreement::Purpose::kJoin, now);
//   if (auto clock = agreement.FreeClock(now)) { ...; agreement.AwaitConfirmation(); }
//   agreement.CloseIfConfirmed();
#pragma once

#include <cstdint>
#include <optional>

#include "core/types.h"
#include "core/view.h"
#include "scheduler/membership/membership.h"
#include "scheduler/progress/notes.h"

namespace tarn::scheduler {

class Agreement {
 public:
  enum class Purpose : std::uint8_t {
    kJoin,
    kCut,
    // For the checkpoint of a stop (rule K11): workers stop, and the proposal remains open until the run ends.
    kDrainedCut,
  };
  // Both outlive this object. `lease_us`: how long a drained cut waits for workers that do not drain.
  Agreement(Membership* membership, Notes* notes, TimeUs lease_us);

  // Requires !open().
  void Open(Purpose purpose, TimeUs now);
  bool open() const { return stage_ != Stage::kClosed; }
  bool reporting() const { return stage_ == Stage::kReporting; }
  Purpose purpose() const { return purpose_; }

  // While workers report: a clock that no worker has passed, once every live worker has reported; for a drained cut,
  // once every one has drained or the wait for that has timed out. nullopt: not yet.
  std::optional<Clock> FreeClock(TimeUs now);
  // Must be called when the agreed clock is used in the view.
  void AwaitConfirmation();
  // Returns true if this call closed the proposal.
  bool CloseIfConfirmed();

 private:
  enum class Stage : std::uint8_t { kClosed, kReporting, kConfirming };
  // AllReported: every live worker has reported this proposal. AllDrained: every live worker has drained for it, so all
  // its pushes are acknowledged and included in its position. Both are false while a verdict is outstanding.
  bool AllReported() const;
  bool AllDrained() const;
  Clock ClockThatNobodyPassed() const;
  void WarnOfUndrained() const;

  Membership* membership_;
  Notes* notes_;
  TimeUs lease_us_;
  Stage stage_ = Stage::kClosed;
  Purpose purpose_ = Purpose::kJoin;
  TimeUs drain_deadline_ = 0;  // when the cut stops waiting for workers that have not drained
  ViewVersion version_;        // in kConfirming: the version that all shards must confirm
};

}  // namespace tarn::scheduler
