// The gradient delays of the workers as metrics, for heartbeats and HTTP.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "core/metrics/metric_list.h"
#include "server/store/store_context.h"

namespace tarn::server {

// `delays`: indexed by rank. Ranks that have pushed no section are left out.
inline MetricList DelayMetrics(std::span<const WorkerDelay> delays) {
  LabelledValues sums, counts;
  for (std::size_t rank = 0; rank < delays.size(); ++rank) {
    if (delays[rank].count == 0) continue;
    sums.emplace_back(std::to_string(rank), delays[rank].sum);
    counts.emplace_back(std::to_string(rank), delays[rank].count);
  }
  MetricList list;
  list.AddBy(ShardMetric("gradient_delay_sum"), std::move(sums));
  list.AddBy(ShardMetric("gradient_delay_count"), std::move(counts));
  return list;
}

}  // namespace tarn::server
