#include "scheduler/progress.h"

#include <algorithm>

namespace tarn::scheduler {

Scores ScoresOf(const Quality& quality) {
  return {.rows = quality.rows,
          .log_loss = quality.LogLoss(),
          .auc = quality.Auc(),
          .accuracy = quality.Accuracy(),
          .normalized_entropy = quality.NormalizedEntropy()};
}

void Totals::OnHeartbeat(const Sender& sender, const Heartbeat& heartbeat) {
  Node& node = (sender.role == Role::kWorker ? workers_ : shards_)[sender.incarnation];
  if (!heartbeat.counters.empty()) node.counters = heartbeat.counters;
  // A heartbeat that comes late holds an older histogram: totals never shrink.
  if (heartbeat.staleness.size() > node.staleness.size()) node.staleness.resize(heartbeat.staleness.size());
  for (std::size_t i = 0; i < heartbeat.staleness.size(); ++i)
    node.staleness[i] = std::max(node.staleness[i], heartbeat.staleness[i]);
}

std::map<std::string, double> Totals::Counters() const {
  std::map<std::string, double> sums;
  for (const auto& [incarnation, node] : workers_)
    for (const Counter& counter : node.counters) sums[counter.name] += counter.value;
  for (const auto& [incarnation, node] : shards_)
    for (const Counter& counter : node.counters) sums["server." + counter.name] += counter.value;
  return sums;
}

std::vector<std::uint64_t> Totals::Staleness() const {
  std::vector<std::uint64_t> sums;
  for (const auto& [incarnation, node] : workers_) {
    if (node.staleness.size() > sums.size()) sums.resize(node.staleness.size());
    for (std::size_t i = 0; i < node.staleness.size(); ++i) sums[i] += node.staleness[i];
  }
  return sums;
}

}  // namespace tarn::scheduler
