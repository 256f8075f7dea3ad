// What a run leaves in figures: the scheduler's line of metrics.jsonl once a second, and summary.json at the end.
// docs of both are the names themselves; units last.
#pragma once

#include <deque>
#include <string>

#include "core/job.h"
#include "core/message.h"
#include "scheduler/progress.h"

namespace tarn::scheduler {

// Trained rows per second over the last few seconds of training.
class Rate {
 public:
  void Add(double time_seconds, const Progress& progress);
  double per_second() const;

 private:
  struct Point {
    double seconds;
    double samples;
  };
  std::deque<Point> points_;
};

// {"time": ..., "role": "scheduler", "state": "train", "epoch": 0, "samples": ..., ...} without a line end.
// time_seconds: since 1970.
std::string MetricsLine(const Job& job, const Progress& progress, const Rate& rate, double time_seconds);

// The whole of summary.json. `end` is why the run ended; figures that the run does not have are null.
std::string SummaryJson(const Job& job, const Progress& progress, const Shutdown& end);

}  // namespace tarn::scheduler
