#include "server/store/gradient_delays.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "core/limits.h"

namespace tarn::server {

void GradientDelays::Count(std::uint64_t delay, WorkerRank worker) {
  const std::size_t bucket = std::min<std::uint64_t>(delay, limits::kDelayBucketsMax - 1);
  if (histogram_.size() <= bucket) histogram_.resize(bucket + 1);
  ++histogram_[bucket];
  if (worker.value >= limits::kDelayWorkersMax) return;
  if (by_worker_.size() <= worker.value) by_worker_.resize(worker.value + 1);
  by_worker_[worker.value].sum += delay;
  ++by_worker_[worker.value].count;
}

MetricList GradientDelays::ByWorker() const {
  LabelledValues sums, counts;
  for (std::size_t rank = 0; rank < by_worker_.size(); ++rank) {
    if (by_worker_[rank].count == 0) continue;
    sums.emplace_back(std::to_string(rank), by_worker_[rank].sum);
    counts.emplace_back(std::to_string(rank), by_worker_[rank].count);
  }
  MetricList list;
  list.AddBy(ShardMetric("gradient_delay_sum"), std::move(sums));
  list.AddBy(ShardMetric("gradient_delay_count"), std::move(counts));
  return list;
}

}  // namespace tarn::server
