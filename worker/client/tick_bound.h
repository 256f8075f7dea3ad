// How far the scheduler's open proposal lets a worker tick and push, and whether the worker is drained for it: rules
// M1, K11 of docs/protocol.md. A plain value. Internal to worker/; one thread.
#pragma once

#include <cstdint>
#include <optional>

#include "core/view.h"

namespace tarn::worker {

// In all functions `asked` is the newest clock to which a tick is requested.
class TickBound {
 public:
  // Adopts the proposal of a view. Returns whether a drain begins; then NoteDrained must be called. mid_clock: the
  // program may have begun the work of this clock, so a drain ends with its next tick.
  bool Adopt(const Proposal& proposal, Clock asked, bool mid_clock = false);
  // The program has not begun the work of the clock and waits. Returns whether a drain ends here; then NoteDrained must
  // be called.
  bool OnRest(Clock asked);
  // A tick to a later clock than any before is requested.
  void OnAsk(Clock clock) {
    if (drains_ && !drain_to_) drain_to_ = clock;
  }
  // A push of the current clock is requested.
  void OnPush(Clock asked) { pushed_ = asked; }
  // Every shard has acknowledged the ticks up to `acked`. Returns whether the worker is now drained and was not before.
  bool NoteDrained(Clock acked);

  // While a proposal is open, no tick beyond this clock and no push of a later clock is sent (in a drain also no push
  // of this clock).
  Clock limit(Clock asked) const {
    if (drains_) return drain_to_.value_or(asked);
    return open_ ? clock_ + kProposalSlack : Clock(UINT64_MAX);
  }
  bool MayPush(Clock clock, Clock asked) const {
    return drains_ && drain_to_ ? clock < *drain_to_ : clock <= limit(asked);
  }

  // Whether a checkpoint of a clock up to `asked` may still be ordered. If not and the view has no order, later orders
  // are for clocks above `asked` (M1).
  bool Undecided(Clock asked) const {
    return open_ && (drains_ ? drain_to_.has_value() && asked >= *drain_to_ : asked > limit(asked));
  }

  bool open() const { return open_; }
  std::uint64_t id() const { return id_; }  // the newest proposal that the worker obeys; 0: none
  // While the proposal is open: the clock at which the worker began to obey it.
  Clock clock() const { return clock_; }
  std::uint64_t drained() const { return drained_; }  // the newest proposal for which the worker is drained; 0: none

 private:
  std::uint64_t id_ = 0;
  Clock clock_;
  bool open_ = false;
  bool drains_ = false;
  std::optional<Clock> drain_to_;  // the clock at which a drain ends; nullopt: at the next tick
  std::optional<Clock> pushed_;    // the newest clock with a push
  std::uint64_t drained_ = 0;
};

}  // namespace tarn::worker
