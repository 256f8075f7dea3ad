// Measures how long at least one of several overlapping activities was in progress. Times must not decrease. Not
// thread-safe.
#pragma once

#include <chrono>
#include <cstddef>

namespace tarn::worker {

class BusyTime {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void Begin(Time now) {
    if (open_++ == 0) since_ = now;
  }
  void End(Time now) {
    if (--open_ == 0) total_ += now - since_;
  }
  // Includes the activities in progress.
  double Seconds(Time now) const {
    return std::chrono::duration<double>(open_ == 0 ? total_ : total_ + (now - since_)).count();
  }

 private:
  std::size_t open_ = 0;
  Time since_;  // valid while open_ != 0
  Time::duration total_{0};
};

}  // namespace tarn::worker
