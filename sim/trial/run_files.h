// The files of a trial's run folder, in the formats of a real run (docs/run.md). `time` in metrics.jsonl is simulated.
// Not thread-safe.
#pragma once

#include <optional>
#include <string>

#include "core/error.h"
#include "core/job/job.h"
#include "core/metrics/metrics_file.h"
#include "core/types.h"
#include "scheduler/progress/progress.h"
#include "scheduler/progress/summary.h"
#include "scheduler/progress/worker_lines.h"
#include "scheduler/scheduler.h"
#include "sim/trial/learning_curve.h"

namespace tarn::sim {

// Figures of the simulation itself.
struct TrialFigures {
  double simulated_seconds = 0;
  std::uint64_t messages = 0, bytes = 0, events = 0;
};

class RunFiles {
 public:
  // kAlreadyExists: the folder has files of another run.
  static Status CheckFree(const std::string& folder);
  // Writes job.toml into the folder, which must exist and be free. kIo: a file cannot be written.
  static Expected<RunFiles> Open(const Job& job, const std::string& folder);

  // Appends lines to metrics.jsonl after about every hundredth of the job.
  void OnProgress(const scheduler::Scheduler& scheduler, TimeUs now);
  // The first error of OnProgress, which then appends no more lines.
  const Status& status() const { return status_; }
  // Writes the last lines, curve.csv and summary.json.
  Status End(const scheduler::Progress& progress, const Shutdown& reason, const TrialFigures& figures,
             const LearningCurve& curve);

 private:
  RunFiles(const Job& job, std::string folder, MetricsFile metrics)
      : job_(job), folder_(std::move(folder)), metrics_(std::move(metrics)) {}
  Status Append(const scheduler::Progress& progress, double seconds);

  Job job_;
  std::string folder_;
  MetricsFile metrics_;
  scheduler::Rate rate_;
  scheduler::WorkerLines worker_lines_;
  std::uint64_t next_samples_ = 0, turns_ = 0;
  Status status_;
};

}  // namespace tarn::sim
