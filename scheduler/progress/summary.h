// What a run leaves in figures: the scheduler's line of metrics.jsonl once a second, and summary.json at the end.
#pragma once

#include <deque>
#include <string>

#include "core/job/job.h"
#include "core/message.h"
#include "core/metrics/metric_list.h"
#include "scheduler/progress/progress.h"

namespace tarn::scheduler {

// Trained rows per second over the last few seconds of training.
class Rate {
 public:
  void Add(double time_seconds, const Progress& progress);
  double per_second() const;
  // The rate to judge the rest of the job by: the one above once its window is full, else that of all training so far;
  // 0 before a few seconds of training, for the first batches are no measure.
  double lasting_per_second() const;

 private:
  struct Point {
    double seconds;
    double samples;
  };
  std::deque<Point> points_;
  double seconds_ = 0, samples_ = 0;  // of all training
};

// What metrics.jsonl and /metrics show of the run; figures that it does not have yet are left out.
MetricList SchedulerMetrics(const Job& job, const Progress& progress, const Rate& rate);

// {"time": ..., "role": "scheduler", "state": "train", "epoch": 1, "samples": ..., ...} without a line end.
// time_seconds: since 1970.
std::string MetricsLine(const Progress& progress, const MetricList& metrics, double time_seconds);

// The whole of summary.json. `end` is why the run ended; figures that the run does not have are null.
std::string SummaryJson(const Job& job, const Progress& progress, const Shutdown& end);

}  // namespace tarn::scheduler
