#include "scheduler/progress/totals.h"

#include <algorithm>

namespace tarn::scheduler {
namespace {

void AddTo(const std::vector<std::uint64_t>& histogram, std::vector<std::uint64_t>* sums) {
  if (histogram.size() > sums->size()) sums->resize(histogram.size());
  for (std::size_t i = 0; i < histogram.size(); ++i) (*sums)[i] += histogram[i];
}

// Keeps the larger counts, because a delayed heartbeat has an older histogram.
void Raise(const std::vector<std::uint64_t>& histogram, std::vector<std::uint64_t>* known) {
  if (histogram.size() > known->size()) known->resize(histogram.size());
  for (std::size_t i = 0; i < histogram.size(); ++i) (*known)[i] = std::max((*known)[i], histogram[i]);
}

}  // namespace

void Totals::OnHeartbeat(const Sender& sender, const Heartbeat& heartbeat) {
  Node& node = (sender.role == Role::kWorker ? workers_ : shards_)[sender.incarnation];
  if (!heartbeat.counters.empty()) node.counters = heartbeat.counters;
  Raise(heartbeat.staleness, &node.staleness);
  Raise(heartbeat.delay, &node.delay);
}

void Totals::End(Incarnation worker) {
  const auto it = workers_.find(worker);
  if (it == workers_.end()) return;
  for (const Counter& counter : it->second.counters)
    if (ended_counters_.size() < kEndedNamesMax || ended_counters_.contains(counter.name))
      ended_counters_[counter.name] += counter.value;
  AddTo(it->second.staleness, &ended_staleness_);
  workers_.erase(it);
}

void Totals::Fill(WorkerProgress* out) const {
  const auto it = workers_.find(out->incarnation);
  if (it == workers_.end()) return;
  out->counters = it->second.counters;
  out->staleness = it->second.staleness;
}

std::map<std::string, double> Totals::Counters() const {
  std::map<std::string, double> sums = ended_counters_;
  for (const auto& [incarnation, node] : workers_)
    for (const Counter& counter : node.counters) sums[counter.name] += counter.value;
  return sums;
}

std::map<std::string, double> Totals::ShardCounters() const {
  std::map<std::string, double> sums;
  for (const auto& [incarnation, node] : shards_)
    for (const Counter& counter : node.counters) sums[counter.name] += counter.value;
  return sums;
}

std::vector<std::uint64_t> Totals::Staleness() const {
  std::vector<std::uint64_t> sums = ended_staleness_;
  for (const auto& [incarnation, node] : workers_) AddTo(node.staleness, &sums);
  return sums;
}

std::vector<std::uint64_t> Totals::Delay() const {
  std::vector<std::uint64_t> sums;
  for (const auto& [incarnation, node] : shards_) AddTo(node.delay, &sums);
  return sums;
}

}  // namespace tarn::scheduler
