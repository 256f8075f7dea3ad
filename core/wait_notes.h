// Decides when to log a wait that goes on: every kWaitNotePeriodUs. A plain value; one thread.
#pragma once

#include "core/log.h"
#include "core/types.h"

namespace tarn {

class WaitNotes {
 public:
  // Whether a line is due when the wait has lasted `waited`. A `waited` below one period begins a new wait.
  bool IsDue(TimeUs waited) {
    if (waited < kWaitNotePeriodUs) next_ = kWaitNotePeriodUs;
    if (waited < next_) return false;
    next_ = waited + kWaitNotePeriodUs;
    return true;
  }

 private:
  TimeUs next_ = kWaitNotePeriodUs;
};

}  // namespace tarn
