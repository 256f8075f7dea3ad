// Starts the processes of a simulated fleet: creates their state machines with the stores and options of the scenario,
// connects them to the network and runs their first step.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>

#include "sim/fleet/context.h"
#include "sim/fleet/node_faults.h"
#include "sim/fleet/run_result.h"
#include "sim/fleet/shard_logs.h"

namespace tarn::sim {

// The disk of the scheduler. Each checkpoint is checked when it is complete.
SimSchedulerStore MakeSchedulerStore(FleetContext& context);

class ProcessStarter {
 public:
  // All arguments outlive this object. resume: the point from which the run continues; none: a new run.
  ProcessStarter(FleetContext& context, ShardLogs* logs, NodeFaults* faults, SimSchedulerStore* store,
                 const std::optional<ResumePoint>* resume);

  // Starts the scheduler. If the state on disk belongs to a run that has begun, the run continues from the state and
  // the logs, and the result is true.
  bool StartScheduler();
  ProcessId StartShard(std::uint32_t index);
  ProcessId StartWorker(std::uint32_t rank);

  // The number of workers that were live in a state from which the scheduler has continued: they died in an outage.
  std::size_t died_in_outages() const { return died_in_outages_.size(); }

 private:
  std::string HttpOf(ProcessId id) const;
  bool LoadState(scheduler::SchedulerOptions* options);
  server::ShardOptions ShardOptionsOf(ProcessId id, std::uint32_t index) const;
  worker::ClientOptions ClientOptionsOf(std::uint32_t rank) const;
  std::unique_ptr<ShardChecker> MakeChecker(ProcessId id) const;
  std::unique_ptr<SimShardStore> MakeStore(ProcessId id, ShardId shard) const;
  std::unique_ptr<SimBlobStore> MakeBlobs(ProcessId id, ShardId shard) const;
  server::Tier MakeTier(ProcessId id) const;
  // Calls `run` after the delay, unless the process has ended by then.
  std::function<void(TimeUs, std::function<void()>)> Later(ProcessId id) const;

  FleetContext& context_;
  ShardLogs* logs_;
  NodeFaults* faults_;
  SimSchedulerStore* store_;
  const std::optional<ResumePoint>* resume_;
  scheduler::SchedulerState restored_;     // from which the current scheduler was started
  std::set<Incarnation> died_in_outages_;  // a set, because several restarts may read the same state
};

}  // namespace tarn::sim
