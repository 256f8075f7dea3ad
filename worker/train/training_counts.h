// What a worker counts of its training, for metrics.
#pragma once

#include <cstdint>

#include "core/metrics/metric_list.h"
#include "worker/train/stage_times.h"

namespace tarn::worker {

struct TrainingCounts {
  std::uint64_t samples = 0, malformed_lines = 0, batches = 0;
  std::uint64_t batches_passed_over = 0;  // skipped, because their gradients overflow fp16
  double loss_sum = 0;                    // of the predictions before each update, without skipped batches
  std::uint64_t loss_rows = 0;
  StageTimes times;
  // CPU time of computing, by any thread, and of pushing. long_step: the part of compute that separate threads did.
  double compute_cpu_seconds = 0, push_cpu_seconds = 0, long_step_cpu_seconds = 0;

  // The counts, as metrics. loop_cpu_seconds: CPU time of the loop's thread.
  MetricList Metrics(double loop_cpu_seconds) const {
    return MetricList()
        .Add(WorkerMetric("samples"), samples)
        .Add(WorkerMetric("malformed_lines"), malformed_lines)
        .Add(WorkerMetric("batches"), batches)
        .Add(WorkerMetric("batches_passed_over"), batches_passed_over)
        .Add(WorkerMetric("loss_sum"), loss_sum)
        .Add(WorkerMetric("loss_rows"), loss_rows)
        .AddBy(WorkerMetric("cpu_seconds"), {{"compute", compute_cpu_seconds},
                                             {"push", push_cpu_seconds},
                                             {"loop", loop_cpu_seconds + long_step_cpu_seconds}});
  }
};

}  // namespace tarn::worker
