// The silence of a scheduler that a worker wants to join: logs it from time to time, and fails when it is too long. One
// thread.
#pragma once

#include <string>
#include <utility>

#include "core/error.h"
#include "core/types.h"
#include "core/wait_notes.h"

namespace tarn::worker {

class JoinWatch {
 public:
  // `scheduler`: its endpoint, for messages. `seconds_max`: the longest silence that Check accepts.
  JoinWatch(std::string scheduler, double seconds_max) : scheduler_(std::move(scheduler)), seconds_max_(seconds_max) {}

  // Call it regularly with the silence so far. kUnavailable if it exceeds seconds_max.
  Status Check(TimeUs silence);

 private:
  std::string scheduler_;
  double seconds_max_;
  WaitNotes notes_;
};

}  // namespace tarn::worker
