// Virtual time in one thread, in a unit that the caller chooses (sim/: microseconds; bench/scale_model:
// nanoseconds).
#pragma once

#include <cstdint>
#include <functional>
#include <queue>

namespace tarn::sim {

// Runs callbacks in order of time; at equal times in order of insertion.
class EventQueue {
 public:
  using Time = std::int64_t;  // in the caller's unit

  // Schedules a callback. If `time` has passed, it runs at now().
  void At(Time time, std::function<void()> run);
  // Runs the next event; false if there is none.
  bool RunOne();
  Time now() const { return now_; }
  std::uint64_t executed() const { return executed_; }

 private:
  struct Event {
    Time time;
    std::uint64_t order;
    std::function<void()> run;
    bool operator<(const Event& other) const {  // later is less, because the heap is a max-heap
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  std::priority_queue<Event> events_;
  Time now_ = 0;
  std::uint64_t next_order_ = 0, executed_ = 0;
};

}  // namespace tarn::sim
