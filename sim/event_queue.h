// Virtual time: what happens when, in one thread. Times are in whatever unit the caller counts in (the fleets of
// tarn-sim: microseconds; bench/scale_model: nanoseconds).
#pragma once

#include <cstdint>
#include <functional>
#include <queue>

#include "core/types.h"

namespace tarn::sim {

// Runs callbacks in order of time, first come first served at equal times.
class EventQueue {
 public:
  void At(TimeUs time, std::function<void()> run);
  // Runs the next event; false if there is none.
  bool RunOne();
  TimeUs now() const { return now_; }
  std::uint64_t executed() const { return executed_; }

 private:
  struct Event {
    TimeUs time;
    std::uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const {  // for a max-heap: later is less
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  std::priority_queue<Event> events_;
  TimeUs now_ = 0;
  std::uint64_t next_order_ = 0, executed_ = 0;
};

}  // namespace tarn::sim
