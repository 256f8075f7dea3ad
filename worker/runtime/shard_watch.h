// Decides when to log that shards do not answer: their servers do not run, or this worker cannot reach their addresses.
// Internal to worker/; one thread.
#pragma once

#include <string>
#include <vector>

#include "core/listening.h"
#include "core/types.h"
#include "core/wait_notes.h"
#include "worker/client/client.h"

namespace tarn::worker {

class ShardWatch {
 public:
  // Call it in every turn. Returns the lines that are due now, which is every kWaitNotePeriodUs while a shard sends
  // nothing although it must answer. Pauses of this process do not count as silence.
  std::vector<std::string> Check(const Client& client, TimeUs now);

 private:
  TimeUs next_check_ = 0;
  std::vector<TimeUs> silent_since_;  // by shard
  Listening listening_;
  WaitNotes notes_;
};

}  // namespace tarn::worker
