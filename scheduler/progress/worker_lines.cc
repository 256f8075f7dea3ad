#include "scheduler/progress/worker_lines.h"

#include <algorithm>
#include <cstdint>

#include "core/json.h"

namespace tarn::scheduler {
namespace {

double CounterOf(const WorkerProgress& worker, std::string_view name) {
  for (const Counter& counter : worker.counters)
    if (counter.name == name) return counter.value;
  return 0;
}

std::uint64_t Whole(double value) { return value > 0 ? static_cast<std::uint64_t>(value) : 0; }

std::uint64_t MaxOf(const std::vector<std::uint64_t>& histogram) {
  for (std::size_t i = histogram.size(); i > 0; --i)
    if (histogram[i - 1] != 0) return i - 1;
  return 0;
}

}  // namespace

WorkerLines::Seen WorkerLines::See(const WorkerProgress& worker, double time_seconds) {
  Seen seen;
  seen.time_seconds = time_seconds;
  seen.samples = CounterOf(worker, "samples_trained");
  seen.loss_sum = CounterOf(worker, "loss_sum");
  seen.loss_rows = CounterOf(worker, "loss_rows");
  seen.waiting_seconds = CounterOf(worker, "stage.pull_seconds") + CounterOf(worker, "stage.wait_seconds");
  for (std::size_t i = 0; i < worker.staleness.size(); ++i) {
    seen.pulls += static_cast<double>(worker.staleness[i]);
    seen.staleness_sum += static_cast<double>(i) * static_cast<double>(worker.staleness[i]);
  }
  return seen;
}

std::vector<std::string> WorkerLines::Make(const Progress& progress, double time_seconds) {
  std::vector<std::string> lines;
  std::map<Incarnation, Seen> now;
  for (const WorkerProgress& worker : progress.workers) {
    const Seen seen = now[worker.incarnation] = See(worker, time_seconds);
    Json json = {{"time", time_seconds},
                 {"role", "worker"},
                 {"rank", worker.rank.value},
                 {"incarnation", worker.incarnation.value},
                 {"state", progress.phase},
                 {"clock", worker.clock.value},
                 {"acked_clock", worker.acked_clock.value},
                 {"samples", Whole(seen.samples)},
                 {"staleness_max", MaxOf(worker.staleness)}};
    for (const char* name : {"batches", "batches_passed_over", "malformed_lines", "pull_bytes", "push_bytes", "repeats",
                             "cache_rows", "cache_hits", "hot_rows", "hot_hits", "combined_pushes", "residual_rows"})
      json[name] = Whole(CounterOf(worker, name));
    if (const auto before = last_.find(worker.incarnation); before != last_.end()) {
      const Seen& last = before->second;
      const double seconds = seen.time_seconds - last.time_seconds;
      if (seconds > 0) {
        json["samples_per_second"] = std::max(0.0, seen.samples - last.samples) / seconds;
        json["waiting_share"] = std::clamp((seen.waiting_seconds - last.waiting_seconds) / seconds, 0.0, 1.0);
      }
      if (seen.loss_rows > last.loss_rows)
        json["loss"] = (seen.loss_sum - last.loss_sum) / (seen.loss_rows - last.loss_rows);
      if (seen.pulls > last.pulls)
        json["staleness_mean"] = (seen.staleness_sum - last.staleness_sum) / (seen.pulls - last.pulls);
    }
    lines.push_back(JsonText(json));
  }
  last_ = std::move(now);
  return lines;
}

}  // namespace tarn::scheduler
