// The counters of a shard.
#pragma once

#include <cstdint>

#include "core/metrics/metric_table.h"

namespace tarn::server {

struct ShardCounters {
  std::uint64_t pulls = 0, pulls_parked = 0, pull_rows = 0;
  std::uint64_t pushes = 0, push_rows = 0, pushes_repeated = 0, pushes_out_of_order = 0;
  std::uint64_t refused_epoch = 0, refused_fenced = 0, refused_other = 0;
  std::uint64_t checkpoints = 0;
  std::uint64_t waited_for_rows = 0;  // messages
};
inline constexpr MetricField<ShardCounters> kShardMetrics[] = {
    {ShardMetric("pulls"), &ShardCounters::pulls},
    {ShardMetric("pulls_parked"), &ShardCounters::pulls_parked},
    {ShardMetric("pull_rows"), &ShardCounters::pull_rows},
    {ShardMetric("pushes"), &ShardCounters::pushes},
    {ShardMetric("push_rows"), &ShardCounters::push_rows},
    {ShardMetric("pushes_repeated"), &ShardCounters::pushes_repeated},
    {ShardMetric("pushes_out_of_order"), &ShardCounters::pushes_out_of_order},
    {ShardMetric("refused_epoch"), &ShardCounters::refused_epoch},
    {ShardMetric("refused_fenced"), &ShardCounters::refused_fenced},
    {ShardMetric("refused_other"), &ShardCounters::refused_other},
    {ShardMetric("checkpoints"), &ShardCounters::checkpoints},
    {ShardMetric("waited_for_rows"), &ShardCounters::waited_for_rows},
};
static_assert(BindsAll(kShardMetrics));

}  // namespace tarn::server
