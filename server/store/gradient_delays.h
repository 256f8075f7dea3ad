// The gradient delays of a store's pushes: how many sections were applied to a partition between the pull and the push
// of its rows.
#pragma once

#include <cstdint>
#include <vector>

#include "core/metrics/metric_list.h"
#include "core/types.h"

namespace tarn::server {

class GradientDelays {
 public:
  // Counts a section. kNoWorker: the sum of several workers' pushes.
  void Count(std::uint64_t delay, WorkerRank worker);
  // Bucket i = sections with delay i; the last one, of at most limits::kDelayBucketsMax, also those with more.
  const std::vector<std::uint64_t>& histogram() const { return histogram_; }
  // Sums and numbers of the sections by worker, for heartbeats and HTTP: of the first limits::kDelayWorkersMax ranks,
  // without those that pushed no section.
  MetricList ByWorker() const;

 private:
  struct Worker {
    std::uint64_t sum = 0, count = 0;
  };

  std::vector<std::uint64_t> histogram_;
  std::vector<Worker> by_worker_;  // by rank
};

}  // namespace tarn::server
