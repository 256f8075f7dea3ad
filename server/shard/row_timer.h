// Sets the time of day of the rows and frees expired rows, each in its period (rules R4 to R6). Not thread-safe.
#pragma once

#include "core/types.h"
#include "server/shard/durable_outbox.h"
#include "server/store/store.h"

namespace tarn::server {

class RowTimer {
 public:
  // Both outlive it. `unix_us_at_zero` is what to add to a step's time to get microseconds since 1970.
  RowTimer(TimeUs unix_us_at_zero, Store* rows, DurableOutbox* outbox)
      : unix_us_at_zero_(unix_us_at_zero), rows_(rows), outbox_(outbox) {}

  // Sets the time, if it is due and a table counts seconds.
  void SetTime(TimeUs now);
  // The same; also frees some expired rows, if that is due.
  void OnTimer(TimeUs now);
  TimeUs NextTimer() const;

 private:
  TimeUs unix_us_at_zero_;
  Store* rows_;
  DurableOutbox* outbox_;
  TimeUs next_time_ = 0;
  TimeUs next_sweep_ = 0;
};

}  // namespace tarn::server
