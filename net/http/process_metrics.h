// What the system says of this process, under the names that Prometheus' own client libraries use with the prefix
// "process_". Any thread.
#pragma once

#include <chrono>

#include "core/metrics/metric_list.h"

namespace tarn::net {

// What cannot be read is left out.
MetricList ProcessMetrics(std::chrono::system_clock::time_point started);

}  // namespace tarn::net
