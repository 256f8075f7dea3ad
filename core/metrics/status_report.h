// What the loop of a state machine publishes of it: an immutable value that it puts into a feed once a second at most,
// and from which the HTTP server of the process answers (net/http/status_server.h).
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
