// Decides when to log that something is still being waited for: every kWaitNotePeriodUs. A plain value; one thread.
#pragma once

#include "core/log.h"
#include "core/types.h"

namespace tarn {

class WaitNotes {
 public:
  // Whether a line is due now that the wait has lasted `waited`. A wait shorter than a period is a new one.
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
