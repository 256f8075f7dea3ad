// Sums of the counters and histograms that nodes report in heartbeats. Plain bookkeeping.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/limits.h"
#include "core/message.h"
#include "scheduler/progress/progress.h"

namespace tarn::scheduler {

// The newest cumulative counters and histograms of each node. When a worker's incarnation ends, its last report is
// added to the sums of ended workers.
class Totals {
 public:
  // Maximum number of counter names of ended workers; counters with further names are dropped.
  static constexpr std::size_t kEndedNamesMax = 4 * std::size_t{limits::kCountersMax};

  void OnHeartbeat(const Sender& sender, const Heartbeat& heartbeat);
  void End(Incarnation worker);
  std::map<std::string, double> Counters() const;  // of workers
  std::map<std::string, double> ShardCounters() const;
  std::vector<std::uint64_t> Staleness() const;  // of workers
  std::vector<std::uint64_t> Delay() const;      // of shards
  // Sets the fields of `out` that come from the worker's last report.
  void Fill(WorkerProgress* out) const;
  std::size_t nodes() const { return workers_.size() + shards_.size(); }

 private:
  struct Node {
    std::vector<Counter> counters;
    std::vector<std::uint64_t> staleness, delay;
  };
  std::map<Incarnation, Node> workers_, shards_;
  std::map<std::string, double> ended_counters_;
  std::vector<std::uint64_t> ended_staleness_;
};

}  // namespace tarn::scheduler
