// The metrics of a shard, for metrics.jsonl and /metrics.
#pragma once

#include "core/metrics/metric_list.h"
#include "net/transport.h"
#include "server/shard/shard.h"

namespace tarn::server {

class FileShardLog;  // server/log/file_shard_log.h

// Must run on the shard's thread. `log`: null if there is none.
MetricList ShardMetrics(const Shard& shard, const net::TransportCounters& net, const FileShardLog* log);

}  // namespace tarn::server
