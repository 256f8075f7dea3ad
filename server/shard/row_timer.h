// Sets the time of day of the rows and frees expired rows, each periodically (rules R4 to R6). Not thread-safe.
#pragma once

#include <functional>
#include <utility>

#include "core/types.h"
#include "server/shard/durable_outbox.h"
#include "server/store/store.h"

namespace tarn::server {

class RowTimer {
 public:
  // The pointers outlive this object. `unix_us`: see ShardOptions.
  RowTimer(std::function<TimeUs(TimeUs now)> unix_us, Store* rows, DurableOutbox* outbox)
      : unix_us_(std::move(unix_us)), rows_(rows), outbox_(outbox) {}

  // Sets the time if it is due and a table counts seconds.
  void SetTime(TimeUs now);
  // The same, and frees a slice of the expired rows if that is due.
  void OnTimer(TimeUs now);
  // The earliest time at which OnTimer has something to do; if it never has, the largest TimeUs.
  TimeUs NextTimer() const;

 private:
  std::function<TimeUs(TimeUs now)> unix_us_;
  Store* rows_;
  DurableOutbox* outbox_;
  TimeUs next_time_ = 0;
  TimeUs next_sweep_ = 0;
};

}  // namespace tarn::server
