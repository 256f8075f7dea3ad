// The logs of the shards of a simulated fleet: their disks, the durations and failures of writes and syncs, and the
// checks after a shard has read its log (sim_log.h).
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
  // `recovered` is called when a shard has read all of its log.
  ShardLogs(FleetContext& context, std::function<void()> recovered);

  // Makes the log of a shard that starts as the process `id`, on the shard's disk.
  std::unique_ptr<SimLog> Make(ProcessId id, std::uint32_t shard);
  // Plans the scenario's slow syncs: each is of a random shard and takes longer than a lease.
  void PlanSlowSyncs();
  // Must be called after a step of the shard. Records the state after the last record, and schedules the write and the
  // sync of appended records.
  void AfterStep(ProcessId id, Process* shard);

  // Must be called when the scheduler starts. Continue: the run continues from its logs with these workers. BeginAnew:
  // the run starts again without logs.
  void Continue(std::vector<WorkerEntry> workers) { workers_ = std::move(workers); }
  void BeginAnew() { witnesses_.clear(); }
  LogWitness& witness(std::uint32_t shard) { return witnesses_[shard]; }
  // The highest tick of the worker that the shard has acknowledged.
  Clock Ticked(std::uint32_t shard, Incarnation worker) const;

  // Makes the next sync of the shard's log fail.
  void FailNextSync(std::uint32_t shard) { failing_.insert(shard); }
  void OnAllEnded();
  std::map<std::uint32_t, server::MemoryDisk>& disks() { return disks_; }  // by shard

  bool sync_failed() const { return sync_failed_; }  // since the last end of all processes
  void AddTo(RunResult* result) const;

 private:
  void OnRecovered(ProcessId id, LogSequence last);
  void RecordState(Process* shard);
  void ScheduleSync(ProcessId id, Process* shard);
  TimeUs SlowSync();

  FleetContext& context_;
  std::function<void()> recovered_;
  std::map<std::uint32_t, server::MemoryDisk> disks_;
  std::map<std::uint32_t, LogWitness> witnesses_;
  std::vector<WorkerEntry> workers_;  // workers of the run when its logs are read
  std::set<std::uint32_t> failing_;   // shards whose next sync fails
  bool sync_failed_ = false;
  std::uint64_t failed_syncs_ = 0, slow_syncs_ = 0, recoveries_ = 0;
};

}  // namespace tarn::sim
