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
  // The scheduler's endpoint; the longest silence.
  JoinWatch(std::string scheduler, double seconds_max) : scheduler_(std::move(scheduler)), seconds_max_(seconds_max) {}

  // `silence` so far. kUnavailable beyond seconds_max.
  Status Check(TimeUs silence);

 private:
  std::string scheduler_;
  double seconds_max_;
  WaitNotes notes_;
};

}  // namespace tarn::worker
