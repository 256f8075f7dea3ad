// Sets the time of day of the rows and frees expired rows, each periodically (rules R4 to R6). Not thread-safe.
#pragma once

#include "core/types.h"
#include "server/shard/durable_outbox.h"
#include "server/store/store.h"

namespace tarn::server {

class RowTimer {
 public:
  // All outlive this object. Microseconds since 1970 = `unix_us_at_zero` + the time of a step.
  RowTimer(TimeUs unix_us_at_zero, Store* rows, DurableOutbox* outbox)
      : unix_us_at_zero_(unix_us_at_zero), rows_(rows), outbox_(outbox) {}

  // Sets the time if it is due and a table counts seconds.
  void SetTime(TimeUs now);
  // The same, and frees a slice of the expired rows if that is due.
  void OnTimer(TimeUs now);
  // The earliest time at which OnTimer has something to do; if it never has, the largest TimeUs.
  TimeUs NextTimer() const;

 private:
  TimeUs unix_us_at_zero_;
  Store* rows_;
  DurableOutbox* outbox_;
  TimeUs next_time_ = 0;
  TimeUs next_sweep_ = 0;
};

}  // namespace tarn::server
