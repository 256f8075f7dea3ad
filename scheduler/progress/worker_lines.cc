#include "scheduler/progress/worker_lines.h"

#include <algorithm>
#include <cstdint>

#include "core/json.h"
#include "core/metrics/metric_list.h"

namespace tarn::scheduler {
namespace {

double CounterOf(const WorkerProgress& worker, const MetricSpec* metric, std::string_view label = {}) {
  const std::string name = CounterName(metric, label);
  for (const Counter& counter : worker.counters)
    if (counter.name == name) return counter.value;
  return 0;
}

std::uint64_t MaxOf(const std::vector<std::uint64_t>& histogram) {
  for (std::size_t i = histogram.size(); i > 0; --i)
    if (histogram[i - 1] != 0) return i - 1;
  return 0;
}

}  // namespace

WorkerLines::Figures WorkerLines::FiguresOf(const WorkerProgress& worker, double time_seconds) {
  Figures figures;
  figures.time_seconds = time_seconds;
  figures.samples = CounterOf(worker, WorkerMetric("samples"));
  figures.loss_sum = CounterOf(worker, WorkerMetric("loss_sum"));
  figures.loss_rows = CounterOf(worker, WorkerMetric("loss_rows"));
  figures.waiting_seconds = CounterOf(worker, WorkerMetric("stage_seconds"), "pull") +
                            CounterOf(worker, WorkerMetric("stage_seconds"), "wait");
  for (std::size_t i = 0; i < worker.staleness.size(); ++i) {
    figures.pulls += static_cast<double>(worker.staleness[i]);
    figures.staleness_sum += static_cast<double>(i) * static_cast<double>(worker.staleness[i]);
  }
  return figures;
}

std::vector<std::string> WorkerLines::Make(const Progress& progress, double time_seconds) {
  std::vector<std::string> lines;
  std::map<Incarnation, Figures> all;
  for (const WorkerProgress& worker : progress.workers) {
    const Figures now = all[worker.incarnation] = FiguresOf(worker, time_seconds);
    Json json = {{"time", time_seconds},
                 {"role", "worker"},
                 {"rank", worker.rank.value},
                 {"incarnation", worker.incarnation.value},
                 {"state", progress.phase}};
    MetricList list;
    list.Add(WorkerMetric("clock"), worker.clock.value).Add(WorkerMetric("acked_clock"), worker.acked_clock.value);
    list.AddCounters(kOfWorker, worker.counters).Add(WorkerMetric("staleness_max"), MaxOf(worker.staleness));
    if (const auto before = last_.find(worker.incarnation); before != last_.end()) {
      const Figures& last = before->second;
      const double seconds = now.time_seconds - last.time_seconds;
      if (seconds > 0) {
        list.Add(WorkerMetric("samples_per_second"), std::max(0.0, now.samples - last.samples) / seconds);
        list.Add(WorkerMetric("waiting_share"),
                 std::clamp((now.waiting_seconds - last.waiting_seconds) / seconds, 0.0, 1.0));
      }
      if (now.loss_rows > last.loss_rows)
        list.Add(WorkerMetric("loss"), (now.loss_sum - last.loss_sum) / (now.loss_rows - last.loss_rows));
      if (now.pulls > last.pulls)
        list.Add(WorkerMetric("staleness_mean"), (now.staleness_sum - last.staleness_sum) / (now.pulls - last.pulls));
    }
    list.WriteTo(&json);
    lines.push_back(JsonText(json));
  }
  last_ = std::move(all);
  return lines;
}

}  // namespace tarn::scheduler
