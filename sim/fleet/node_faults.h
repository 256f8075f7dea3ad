// What goes wrong with single nodes and their links, and when: reconnects, partitions, pauses, crashes of workers,
// second starts, cuts when the view changes, disks for cold rows that fail, clocks that jump.
#pragma once

#include <cstdint>
#include <map>

#include "sim/fleet/context.h"
#include "sim/fleet/run_result.h"

namespace tarn::sim {

class NodeFaults {
 public:
  explicit NodeFaults(FleetContext& context) : context_(context) {}

  // Draws all that happens at times of its own; at the beginning of the run.
  void Plan();
  void PlanTimeJumps();
  // Of a shard with rows on disk, when it makes its tier.
  void PlanTierFaults(ProcessId id);

  // The view has changed.
  void OnNewView() { CutAtChange(); }
  // There is another order to cut a checkpoint.
  void OnNewOrder();
  // A shard has stopped by itself.
  void OnShardStopped(const Process& shard);
  void AfterWorkerStep(Process* worker);

  // away_us: how long it is gone; 0: by chance.
  void CrashWorker(std::uint32_t rank, TimeUs away_us = 0);
  void OnAllEnded() { shard_slept_until_ = 0; }

  bool shard_slept() const { return shard_slept_until_ != 0; }  // beyond the lease
  void AddTo(RunResult* result) const;

 private:
  void PlanPartitions();
  void PlanPauses();
  void PlanSecondStarts();
  void PlanRequests();
  void Pause(NodeId node, TimeUs length);
  void CutAtChange();
  void JumpInTime();

  FleetContext& context_;
  std::map<std::uint32_t, TimeUs> next_cut_;  // by shard: when it may be cut off again
  TimeUs shard_slept_until_ = 0;
  std::uint64_t crashes_ = 0, time_jumps_ = 0, others_ = 0;  // crashes: of workers
};

}  // namespace tarn::sim
