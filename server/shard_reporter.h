// Publishes the metrics of a shard, once a second: as a line of metrics.jsonl, and as a report for the HTTP server. One
// thread.
#pragma once

#include <memory>
#include <utility>

#include "core/metrics/metric_list.h"
#include "core/metrics/metrics_file.h"
#include "core/metrics/status_report.h"
#include "core/types.h"

namespace tarn::server {

class ShardReporter {
 public:
  // Both may be null. `file` outlives the reporter.
  ShardReporter(ShardId shard, MetricsWriter* file, std::shared_ptr<StatusFeed> feed)
      : shard_(shard), file_(file), feed_(std::move(feed)) {}

  bool IsDue(TimeUs now) const { return now >= next_; }
  // `ready`: the shard takes part in the run. `unix_seconds`: the time of the metrics.
  void Publish(TimeUs now, double unix_seconds, bool ready, MetricList metrics);

 private:
  ShardId shard_;
  MetricsWriter* file_;
  std::shared_ptr<StatusFeed> feed_;
  TimeUs next_ = 0;
};

}  // namespace tarn::server
