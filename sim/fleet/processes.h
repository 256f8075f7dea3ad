// The current processes of a simulated fleet, by shard and worker rank.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "sim/fleet/process.h"

namespace tarn::sim {

class Processes {
 public:
  using Map = std::map<ProcessId, std::unique_ptr<Process>>;

  // Adds a process of the node.
  ProcessId Add(NodeId node, std::uint32_t rank) {
    const ProcessId id = next_++;
    Process& process = *(processes_[id] = std::make_unique<Process>());
    process.node = node;
    process.rank = rank;
    return id;
  }
  void Remove(ProcessId id) { processes_.erase(id); }
  // Removes every process. down() is then true until Start.
  void EndAll() {
    processes_.clear();
    down_ = true;
  }
  void Start() { down_ = false; }
  bool down() const { return down_; }

  Process* Find(ProcessId id) const {
    const auto it = processes_.find(id);
    return it == processes_.end() ? nullptr : it->second.get();
  }
  bool contains(ProcessId id) const { return processes_.contains(id); }
  const Map& all() const { return processes_; }

  // The current scheduler; null: none.
  scheduler::Scheduler* scheduler() const {
    const Process* process = Find(scheduler_id_);
    return process == nullptr ? nullptr : process->scheduler.get();
  }
  // Whether faults may still occur: the fleet is not down, and it has a scheduler that is not stopping.
  bool Runs() const { return !down_ && scheduler() != nullptr && !scheduler()->stopping(); }
  ProcessId scheduler_id() const { return scheduler_id_; }
  void SetScheduler(ProcessId id) { scheduler_id_ = id; }
  // By shard and by rank; the processes may have ended.
  std::vector<ProcessId>& shards() { return shards_; }
  std::vector<ProcessId>& workers() { return workers_; }
  const std::vector<ProcessId>& shards() const { return shards_; }
  // Whether every shard has a process that has joined. The replacement of a dead one cannot join a job that ends.
  bool AllShardsThere() const {
    return std::ranges::all_of(shards_, [this](ProcessId id) {
      const Process* process = Find(id);
      return process != nullptr && process->shard->joined();
    });
  }

 private:
  Map processes_;
  ProcessId next_ = 0, scheduler_id_ = 0;
  std::vector<ProcessId> shards_, workers_;
  bool down_ = false;
};

}  // namespace tarn::sim
