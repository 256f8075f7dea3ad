#include "worker/train/worker_metrics.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace tarn::worker {
namespace {

struct Known {
  std::string_view name, help;
  MetricKind kind = MetricKind::kCounter;
};

constexpr Known kKnown[] = {
    {"samples_trained", "Rows trained"},
    {"malformed_lines", "Malformed lines that training passed over"},
    {"batches", "Batches trained"},
    {"batches_passed_over", "Batches that pushed nothing, since their gradients do not fit fp16"},
    {"loss_sum", "Sum of the log-losses of rows trained, each before it is learnt"},
    {"loss_rows", "Rows in loss_sum"},
    {"pull_bytes", "Keys and values of pulls as they travel, in bytes, without repeats"},
    {"push_bytes", "Keys and values of pushes as they travel, in bytes, without repeats"},
    {"repeats", "Messages sent again"},
    {"unknown_lists", "Lists of keys that a shard was to hold and did not"},
    {"cache_rows", "Rows pulled of tables with a cache"},
    {"cache_hits", "Rows found in the cache"},
    {"hot_rows", "Rows looked for among the hot rows"},
    {"hot_hits", "Rows found among the hot rows"},
    {"combined_pushes", "Pushes that went along with one of a later clock"},
    {"residual_rows", "Rows of gradients kept and not sent yet", MetricKind::kGauge},
    {"residuals_expired", "Rows of gradients dropped with their row"},
    {"residuals_crowded", "Rows of gradients sent for want of room"},
};

// NAME of PREFIX.NAME_seconds.
std::string_view PartOf(std::string_view name, std::string_view prefix) {
  constexpr std::string_view kSuffix = "_seconds";
  if (!name.starts_with(prefix) || !name.ends_with(kSuffix)) return {};
  return name.substr(prefix.size(), name.size() - prefix.size() - kSuffix.size());
}

}  // namespace

MetricList WorkerMetrics(std::span<const Counter> counters, Clock clock, std::vector<std::uint64_t> staleness) {
  MetricList list;
  std::vector<std::pair<std::string, MetricValue>> stages, cpu;
  list.Gauge("clock", "Clock that the worker is in", clock.value);
  for (const auto& [name, value] : counters) {
    if (const std::string_view stage = PartOf(name, "stage."); !stage.empty()) {
      stages.emplace_back(stage, value);
    } else if (const std::string_view part = PartOf(name, "cpu."); !part.empty()) {
      cpu.emplace_back(part, value);
    } else if (const auto* known = std::ranges::find(kKnown, name, &Known::name); known != std::end(kKnown)) {
      known->kind == MetricKind::kGauge ? list.Gauge(name, known->help, value) : list.Counter(name, known->help, value);
    } else {
      list.Counter(name, "A counter of heartbeats", value);
    }
  }
  list.CounterBy("stage", "stage_seconds", "Time in a stage of the pipeline, in seconds", std::move(stages));
  list.CounterBy("stage", "cpu_seconds", "CPU time in a stage of the training loop, in seconds", std::move(cpu));
  list.Histogram("staleness_clocks", "Clocks by which pulls were behind", std::move(staleness));
  return list;
}

}  // namespace tarn::worker
