// Plans the faults of single nodes and their links: reconnects, partitions, pauses, crashes of workers, second starts,
// isolation of a shard when the view changes, failures of the tier's disk, jumps of clocks.
#pragma once

#include <cstdint>
#include <map>

#include "sim/fleet/context.h"
#include "sim/fleet/run_result.h"

namespace tarn::sim {

class NodeFaults {
 public:
  explicit NodeFaults(FleetContext& context) : context_(context) {}

  // Plans reconnects, partitions, pauses, crashes, second starts and requests. Must be called at the beginning of the
  // run.
  void Plan();
  void PlanTimeJumps();
  // Plans faults of a shard's tier. Must be called when the tier is made.
  void PlanTierFaults(ProcessId id);

  // Must be called when the view has changed.
  void OnNewView() { IsolateShard(); }
  // Must be called at a new checkpoint order.
  void OnNewOrder();
  // Must be called when a shard has stopped by itself.
  void OnShardStopped(const Process& shard);
  void AfterWorkerStep(Process* worker);

  // `away_us`: time until its restart; 0: random.
  void CrashWorker(std::uint32_t rank, TimeUs away_us = 0);
  void OnAllEnded() { shard_slept_until_ = 0; }

  bool shard_slept() const { return shard_slept_until_ != 0; }  // for more than a lease
  void AddTo(RunResult* result) const;

 private:
  void PlanPartitions();
  void PlanPauses();
  void PlanSecondStarts();
  void PlanRequests();
  void Pause(NodeId node, TimeUs length);
  void IsolateShard();
  void JumpInTime();

  FleetContext& context_;
  std::map<std::uint32_t, TimeUs> next_cut_;  // by shard: earliest time of its next isolation
  TimeUs shard_slept_until_ = 0;
  std::uint64_t crashes_ = 0, time_jumps_ = 0, other_faults_ = 0;  // crashes_: of workers
};

}  // namespace tarn::sim
