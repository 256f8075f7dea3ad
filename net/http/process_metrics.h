// Metrics of the operating system about this process, with the names that Prometheus' client libraries use after the
// prefix "process_". Any thread.
#pragma once

#include <chrono>

#include "core/metrics/metric_list.h"

namespace tarn::net {

// Omits metrics that cannot be read.
MetricList ProcessMetrics(std::chrono::system_clock::time_point started);

}  // namespace tarn::net
