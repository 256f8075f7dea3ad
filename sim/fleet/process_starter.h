// Starts the processes of a simulated fleet: makes their state machines with the stores and options that the scenario
// says, connects them to the network and lets them take their first step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "sim/fleet/context.h"
#include "sim/fleet/node_faults.h"
#include "sim/fleet/run_result.h"
#include "sim/fleet/shard_logs.h"

namespace tarn::sim {

// The disk of the scheduler, whose checkpoints are checked once they are whole.
SimSchedulerStore MakeSchedulerStore(FleetContext& context);

class ProcessStarter {
 public:
  // All outlive it. resume: where the run continues from; none: it begins.
  ProcessStarter(FleetContext& context, ShardLogs* logs, NodeFaults* faults, SimSchedulerStore* store,
                 const std::optional<ResumePoint>* resume);

  // From its state on disk and the logs, if that state is of a run that has begun: then true.
  bool StartScheduler();
  ProcessId StartShard(std::uint32_t index);
  ProcessId StartWorker(std::uint32_t rank);

  // Workers that were live when all processes ended.
  std::uint64_t died_in_outages() const { return died_in_outages_; }

 private:
  bool LoadState(scheduler::SchedulerOptions* options);
  server::ShardOptions ShardOptionsOf(ProcessId id, std::uint32_t index) const;
  worker::ClientOptions ClientOptionsOf(std::uint32_t rank) const;
  std::unique_ptr<ShardChecker> MakeChecker(ProcessId id) const;
  std::unique_ptr<SimShardStore> MakeStore(ProcessId id, ShardId shard) const;
  std::unique_ptr<SimBlobStore> MakeBlobs(ProcessId id, ShardId shard) const;
  server::Tier MakeTier(ProcessId id) const;
  // Calls `run` after the delay, unless the process is gone by then.
  std::function<void(TimeUs, std::function<void()>)> Later(ProcessId id) const;

  FleetContext& context_;
  ShardLogs* logs_;
  NodeFaults* faults_;
  SimSchedulerStore* store_;
  const std::optional<ResumePoint>* resume_;
  scheduler::SchedulerState restored_;  // that the scheduler at hand was started from
  std::uint64_t died_in_outages_ = 0;
};

}  // namespace tarn::sim
