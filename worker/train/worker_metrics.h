// What a worker publishes of itself on /metrics, made of the counters that it sends with its heartbeats. docs/run.md
// says what each means. Any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/message.h"
#include "core/metrics/metric_list.h"

namespace tarn::worker {

// Counters "stage.NAME_seconds" and "cpu.NAME_seconds" become stage_seconds and cpu_seconds by stage; of names that are
// not known the help says nothing. staleness[i]: pulls that were i clocks behind.
MetricList WorkerMetrics(std::span<const Counter> counters, Clock clock, std::vector<std::uint64_t> staleness);

}  // namespace tarn::worker
