// A whole fleet under one seed: the scheduler, shards and workers as processes over the simulated network, disturbed by
// NodeFaults, Outages and Deaths, run to its end. It runs the steps of processes and passes their actions to the
// checkers and fault injectors.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "sim/fleet/context.h"
#include "sim/fleet/deaths.h"
#include "sim/fleet/delivery.h"
#include "sim/fleet/fleet_checks.h"
#include "sim/fleet/node_faults.h"
#include "sim/fleet/outages.h"
#include "sim/fleet/process_starter.h"
#include "sim/fleet/run_result.h"
#include "sim/fleet/shard_logs.h"
#include "sim/sim_store.h"

namespace tarn::sim {

class Fleet final : private FleetControl {
 public:
  // `disk` outlives the fleet. `resume`: copied; null: from the beginning.
  Fleet(const Scenario& scenario, SimDisk* disk, const ResumePoint* resume, bool verbose);
  ~Fleet() override { context_.processes.EndAll(); }  // they end before the disks that they use
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  RunResult Run();
  // Checks the values of a checkpoint of this run, if it was cut at a clock.
  void CheckCheckpoint(const ResumePoint& point);
  const std::string& failure() const { return context_.oracle.failure(); }

 private:
  void Step(ProcessId id, std::function<void(Process&, Outbox*)> step) override;
  void ArmTimer(ProcessId id, Process& process) override;
  ProcessId StartShard(std::uint32_t index) override { return starter_.StartShard(index); }
  ProcessId StartWorker(std::uint32_t rank) override { return starter_.StartWorker(rank); }
  void StartAll() override;
  void OnAllEnded() override;

  // Sends the messages of a process.
  void Flush(ProcessId id, const Process& process, Outbox* out);
  void AfterStep(ProcessId id, Process& process);
  void AfterWorkerStep(ProcessId id, Process& process);
  void OnSent(const Message& message);
  void CheckListed();
  void OnNewView(const View& view);
  void Restart(ProcessId id, std::uint32_t rank);
  void ConnectToShards(ProcessId id, const Process& process);

  void Plan();
  void RunToTheEnd();
  bool Excused(const Shutdown& reason) const;  // whether injected faults explain the failure of the job
  void CheckResult(RunResult* result);
  void AddFigures(RunResult* result) const;
  // Fills in the results from the final state. An error means that rows of a shard cannot be read.
  Status ReadEnd(RunResult* result);
  Expected<std::uint64_t> StateHash() const;
  std::string Describe() const;

  struct Seen {
    ViewVersion view, sent_view;  // of the current scheduler
    CheckpointId order, whole;    // the newest checkpoint that was ordered, and the newest complete one
    std::uint64_t fenced = 0;
    bool residuals = false;       // a worker has had some, or the run resumed from a checkpoint with blobs
    bool residuals_lost = false;  // when the run continued from its logs (rule K10)
  };

  std::optional<ResumePoint> resume_;
  FleetContext context_;
  SimSchedulerStore store_;
  FleetChecks checks_;
  NodeFaults faults_;
  ShardLogs logs_;
  Outages outages_;
  Deaths deaths_;
  ProcessStarter starter_;
  Delivery delivery_;
  Seen seen_;
};

}  // namespace tarn::sim
