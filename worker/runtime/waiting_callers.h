// The callers that wait for answers of one client (client_driver.h): whether there is one, or a crowd. Any thread.
// Internal to worker/.
#pragma once

#include <atomic>
#include <chrono>

#include "core/types.h"

namespace tarn::worker {

class WaitingCallers {
 public:
  // A caller begins to wait. True: it is the only one. Otherwise the callers are a crowd for kCrowdUs from now on.
  bool Enter() {
    if (count_.fetch_add(1) == 0) return true;
    crowded_until_.store(Now() + kCrowdUs, std::memory_order_relaxed);
    return false;
  }
  void Leave() { count_.fetch_sub(1); }

  bool crowded() const {
    const TimeUs until = crowded_until_.load(std::memory_order_relaxed);
    return until != 0 && Now() < until;
  }
  // Whether exactly one caller waits, outside of crowds.
  bool single() const { return count_.load() == 1 && !crowded(); }

  static TimeUs Now() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  }

 private:
  static constexpr TimeUs kCrowdUs = 10'000;

  std::atomic<int> count_{0};
  std::atomic<TimeUs> crowded_until_{0};
};

}  // namespace tarn::worker
