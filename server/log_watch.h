// How long the disk of a shard's log has not answered while acknowledgements wait for it. A plain value; one thread.
#pragma once

#include <optional>

#include "core/log.h"
#include "core/types.h"

namespace tarn::server {

class LogWatch {
 public:
  // Called in every turn of the shard's loop. durable: nothing waits for the log. synced: the newest record that is
  // durable. Returns for how long the disk has been silent, when a warning is due: after kWaitNotePeriodUs, and again
  // every kWaitNotePeriodUs.
  // A silence begins with the first turn that ends with something waiting, and anew after a break of that period
  // between two turns: the process, or its machine, was stopped, and the disk with it.
  std::optional<TimeUs> Note(TimeUs now, bool durable, LogSequence synced) {
    const bool was_stopped = now - last_ > kWaitNotePeriodUs;
    last_ = now;
    if (durable) {
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
