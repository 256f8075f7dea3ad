// The clock of a program: that which its client will have reached when it has started all ticks that the program has
// submitted. The client itself may skip clocks meanwhile (rule C8 of docs/protocol.md); those that a submitted jump
// covers are not counted twice. Any thread. Internal to worker/.
//
//   clock.OnTickTo(to);                          // the program submits a jump
//   clock.OnSkip(3);                             // meanwhile the client skips clocks
//   clock.OnStart(to, client->clock());          // the jump is started
//   client->TickTo(to, ...);
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "core/types.h"

namespace tarn::worker {

class ProgramClock {
 public:
  void Begin(Clock start) { clock_ = start.value; }
  Clock now() const { return Clock(clock_.load()); }

  // The program submits a tick, or a jump.
  void OnTick() {
    const std::lock_guard lock(mutex_);
    ++clock_;
  }
  void OnTickTo(Clock to) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t gain = to.value - std::min(to.value, clock_.load());
    clock_ += gain;
    ahead_ += gain;
    ++jumps_;
  }

  // In turns of the runtime: the client skips clocks, and is about to start a jump at its clock `at`.
  void OnSkip(std::uint64_t clocks) {
    const std::lock_guard lock(mutex_);
    Advance(clocks);
  }
  void OnStart(Clock to, Clock at) {
    const std::lock_guard lock(mutex_);
    Advance(to.value - std::min(to.value, at.value));
    if (--jumps_ != 0) return;
    clock_ -= ahead_;  // not 0 only if another thread's tick was started before the jump, but submitted after it
    ahead_ = 0;
  }

 private:
  // The client advances other than by a tick to its next clock.
  void Advance(std::uint64_t clocks) {
    const std::uint64_t expected = std::min(clocks, ahead_);
    ahead_ -= expected;
    clock_ += clocks - expected;
  }

  std::mutex mutex_;                      // for changes
  std::atomic<std::uint64_t> clock_ = 0;  // start clock + ticks + gains of jumps + clocks skipped beyond them
  std::uint64_t ahead_ = 0;               // of the gains of jumps: the clocks that the client has not reached
  std::uint64_t jumps_ = 0;               // submitted and not started
};

}  // namespace tarn::worker
