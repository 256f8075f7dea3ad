// What a worker counts of its training, for metrics.
#pragma once

#include <cstdint>

#include "core/metrics/metric_list.h"
#include "worker/train/stage_times.h"

namespace tarn::worker {

struct TrainingCounts {
  std::uint64_t samples = 0, malformed_lines = 0, batches = 0;
  std::uint64_t batches_passed_over = 0;  // whose gradients did not fit fp16
  double loss_sum = 0;                    // of the predictions before each update, but of batches passed over
  std::uint64_t loss_rows = 0;
  StageTimes times;
  // Of processor time: parts of the loop's, and of long steps, which other threads compute.
  double compute_cpu_seconds = 0, push_cpu_seconds = 0, beside_cpu_seconds = 0;

  // The counts, as metrics. loop_cpu_seconds: of the loop's thread.
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
                                             {"loop", loop_cpu_seconds + beside_cpu_seconds}});
  }
};

}  // namespace tarn::worker
