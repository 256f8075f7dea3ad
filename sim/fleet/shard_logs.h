// The logs of the shards of a simulated fleet: their disks, how long writes and syncs take, which syncs fail, and what
// must hold when a shard has read its log (sim_log.h).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "sim/disks/memory_files.h"
#include "sim/fleet/context.h"
#include "sim/fleet/run_result.h"
#include "sim/sim_log.h"

namespace tarn::sim {

class ShardLogs {
 public:
  // recovered: a shard has read all of its log.
  ShardLogs(FleetContext& context, std::function<void()> recovered);

  std::unique_ptr<SimLog> Make(ProcessId id, std::uint32_t shard);
  // The disk of some shard will not answer for longer than a lease.
  void PlanSlowSyncs();
  // After a step of the shard: notes the state behind the record that is the last now, and lets what it has appended be
  // written after a while and be durable after another.
  void AfterStep(ProcessId id, Process* shard);

  // The run continues with these workers, from logs; it begins anew, without any.
  void Continue(std::vector<WorkerEntry> workers) { workers_ = std::move(workers); }
  void BeginAnew() { witnesses_.clear(); }
  LogWitness& witness(std::uint32_t shard) { return witnesses_[shard]; }
  Clock Ticked(std::uint32_t shard, Incarnation worker) const;

  // The next sync of the shard's log fails.
  void FailNextSync(std::uint32_t shard) { failing_.insert(shard); }
  void OnAllEnded();
  std::map<std::uint32_t, server::MemoryDisk>& disks() { return disks_; }  // by shard

  bool sync_failed() const { return sync_failed_; }  // since all processes ended
  void AddTo(RunResult* result) const;

 private:
  void OnRecovered(ProcessId id, LogSequence last);
  void Witness(Process* shard);
  void Tend(ProcessId id, Process* shard);
  TimeUs SlowSync();

  FleetContext& context_;
  std::function<void()> recovered_;
  std::map<std::uint32_t, server::MemoryDisk> disks_;
  std::map<std::uint32_t, LogWitness> witnesses_;
  std::vector<WorkerEntry> workers_;  // of the run, when its logs are read
  std::set<std::uint32_t> failing_;
  bool sync_failed_ = false;
  std::uint64_t failed_syncs_ = 0, slow_syncs_ = 0, recoveries_ = 0;
};

}  // namespace tarn::sim
