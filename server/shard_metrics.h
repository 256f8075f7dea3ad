// What a shard's loop publishes of it, in metrics.jsonl and on /metrics.
#pragma once

#include "core/metrics/metric_list.h"
#include "net/transport.h"
#include "server/shard/shard.h"

namespace tarn::server {

class FileShardLog;  // server/log/file_shard_log.h

// On the shard's thread. log: null if there is none.
MetricList ShardMetrics(const Shard& shard, const net::TransportCounters& net, const FileShardLog* log);

}  // namespace tarn::server
