// The gradient delays of a store's pushes. The delay of a section is the number of sections of its table that its
// partition has applied since the section's rows were pulled (docs/protocol.md, E8).
#pragma once

#include <cstdint>
#include <vector>

#include "core/metrics/metric_list.h"
#include "core/types.h"

namespace tarn::server {

class GradientDelays {
 public:
  // Counts a section. kNoWorker: its gradients are a sum over workers.
  void Count(std::uint64_t delay, WorkerRank worker);
  // Bucket i counts the sections with delay i; bucket limits::kDelayBucketsMax - 1 also those with a higher delay.
  const std::vector<std::uint64_t>& histogram() const { return histogram_; }
  // For each worker, the sum of the delays and the number of its counted sections; for heartbeats and HTTP. Omits
  // workers without counted sections, and ranks from limits::kDelayWorkersMax on.
  MetricList ByWorker() const;

 private:
  struct Worker {
    std::uint64_t sum = 0, count = 0;
  };

  std::vector<std::uint64_t> histogram_;
  std::vector<Worker> by_worker_;  // by rank
};

}  // namespace tarn::server
