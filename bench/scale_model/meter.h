// Measures the steps of the real state machines while a simulated fleet runs them (RunFleet with a meter): a lap is the
// time since the previous lap or Begin, in nanoseconds.
#pragma once

#include <chrono>
#include <map>
#include <vector>

#include "bench/scale_model/costs.h"

namespace tarn::scale {

class Meter {
 public:
  void Begin() { last_ = Clock::now(); }
  double Lap() {
    const auto now = Clock::now();
    const double ns = std::chrono::duration<double, std::nano>(now - last_).count();
    last_ = Clock::now();
    return ns;
  }
  void Add(Work work, const Sample& sample) { samples_[work].push_back(sample); }
  const std::map<Work, std::vector<Sample>>& samples() const { return samples_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_;
  std::map<Work, std::vector<Sample>> samples_;
};

}  // namespace tarn::scale
