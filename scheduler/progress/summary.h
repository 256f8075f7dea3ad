// The figures of a run: the scheduler's line in metrics.jsonl once a second, and summary.json at the end. docs/run.md
// describes both.
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
  double per_second() const;  // 0: unknown
  // The rate for estimating the rest of the job: per_second() if its window is full, else that of all training so far.
  // 0 in the first seconds of training, because the first batches are not representative.
  double lasting_per_second() const;

 private:
  struct Point {
    double seconds;
    double samples;
  };
  std::deque<Point> points_;
  double seconds_ = 0, samples_ = 0;  // of all training
};

// The metrics of the run for metrics.jsonl and /metrics; unknown figures are left out.
MetricList SchedulerMetrics(const Job& job, const Progress& progress, const Rate& rate);

// {"time": ..., "role": "scheduler", "state": "train", "epoch": 1, "samples": ..., ...} without a line end.
// `time_seconds`: since 1970.
std::string MetricsLine(const Progress& progress, const MetricList& metrics, double time_seconds);

// The contents of summary.json. `end`: the reason why the run ended. Unknown figures are null.
std::string SummaryJson(const Job& job, const Progress& progress, const Shutdown& end);

}  // namespace tarn::scheduler
