// Measures how long the disk of a shard's log has made no progress while acknowledgements wait for it. A plain value;
// one thread.
#pragma once

#include <optional>

#include "core/log.h"
#include "core/types.h"

namespace tarn::server {

class LogWatch {
 public:
  // Call it in every turn of the shard's loop. `all_durable`: nothing waits for the log. `synced`: the newest durable
  // record. Returns the time without progress if a warning is due, which is every kWaitNotePeriodUs. The measurement
  // starts with the first turn after which something waits. It restarts if two turns are further apart than that
  // period, because the process or its machine was then suspended.
  std::optional<TimeUs> Note(TimeUs now, bool all_durable, LogSequence synced) {
    const bool was_stopped = now - last_ > kWaitNotePeriodUs;
    last_ = now;
    if (all_durable) {
      since_.reset();
      return {};
    }
    if (!since_ || synced != synced_ || was_stopped) {
      since_ = now;
      synced_ = synced;
      next_ = now + kWaitNotePeriodUs;
    }
    if (now < next_) return {};
    next_ = now + kWaitNotePeriodUs;
    return now - *since_;
  }

 private:
  std::optional<TimeUs> since_;
  LogSequence synced_;
  TimeUs last_ = 0, next_ = 0;
};

}  // namespace tarn::server
