// Reports in Prometheus' text exposition format, version 0.0.4. Free functions, any thread.
#pragma once

#include <span>
#include <string>

#include "core/metrics/status_report.h"

namespace tarn::net {

inline constexpr char kPrometheusContentType[] = "text/plain; version=0.0.4; charset=utf-8";

// Metric NAME of a report becomes tarn_ROLE_NAME, a counter tarn_ROLE_NAME_total, a metric of the process process_NAME.
// Its labels are run, role and rank (unless empty) and the metric's label. The buckets of histograms have the bounds 0,
// 1, 2, 3, 4, 6, 8, 12, ... 1024. A report with a time also gives ready (0 or 1) and updated_timestamp_seconds.
std::string PrometheusText(const std::string& run, std::span<const StatusReport* const> reports);

}  // namespace tarn::net
