// The published state of a state machine: an immutable value that its loop puts into a feed at most once a second. The
// HTTP server of the process answers from it (net/http/status_server.h).
#pragma once

#include <memory>
#include <string>

#include "core/metrics/mailbox.h"
#include "core/metrics/metric_list.h"

namespace tarn {

struct StatusReport {
  std::string role;  // "scheduler", "shard", "worker"; as in metrics.jsonl
  std::string rank;
  bool ready = false;  // takes part in the run
  double unix_seconds = 0;
  MetricList metrics;
};

using StatusFeed = Mailbox<StatusReport>;

}  // namespace tarn
