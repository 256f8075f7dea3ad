// A whole fleet under one seed: the scheduler, shards and workers as processes over the simulated network, with
// pauses, partitions, reconnects, crashes and rejoins, run to its end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/manifest.h"
#include "scheduler/scheduler.h"
#include "server/memory_checkpoint_store.h"
#include "server/shard.h"
#include "tests/sim/network.h"
#include "tests/sim/oracle.h"
#include "tests/sim/sim_worker.h"

namespace tarn::sim {

struct RunResult {
  std::uint64_t seed = 0;
  std::string failure;                // empty: nothing found
  std::uint64_t state_hash = 0;       // of all state machines at the end and the number of events
  std::uint64_t parameters_hash = 0;  // of all rows and slots
  std::uint64_t acked_push_ids = 0;
  std::uint64_t faults_fired = 0;
  std::uint64_t messages = 0, events = 0, crashes = 0, fenced = 0;
  std::uint64_t workers_died = 0;  // as the scheduler saw it
  TimeUs simulated_us = 0;
  bool busy() const { return acked_push_ids >= 1000 && faults_fired > 0; }
};

class MemorySchedulerStore : public scheduler::SchedulerStore {
 public:
  Status WriteManifest(const std::string& directory, const Manifest& manifest) override;
  void RemoveCheckpoint(const std::string& directory) override;
  std::map<std::string, Manifest> manifests;
};

class Fleet {
 public:
  Fleet(const Scenario& scenario, bool verbose);
  ~Fleet();
  RunResult Run();

 private:
  struct Process;

  ProcessId StartScheduler();
  ProcessId StartShard(std::uint32_t index);
  ProcessId StartWorker(std::uint32_t rank);
  void PlanFaults();
  void CrashWorker(std::uint32_t rank);
  void Deliver(ProcessId to, Peer from, Message message);
  void Step(ProcessId id, std::function<void(Process&, Outbox*)> step);
  void AfterStep(ProcessId id, Process& process);
  void ArmTimer(ProcessId id, Process& process);
  void ConnectToShards(ProcessId id, Process& process);
  void CheckGroundTruth(Clock use) const;
  void CheckEnd();
  float FinalValue(Key key);
  std::uint64_t StateHash() const;
  void Trace(const std::string& what);
  std::string DescribeAll() const;

  Scenario scenario_;
  bool verbose_;
  EventQueue events_;
  SplitMix rng_;
  Oracle oracle_;
  Network network_;
  server::MemoryCheckpointFiles checkpoint_files_;
  MemorySchedulerStore scheduler_store_;
  std::map<ProcessId, std::unique_ptr<Process>> processes_;
  std::vector<ProcessId> worker_of_rank_;
  ProcessId scheduler_id_ = 0;
  std::vector<ProcessId> shard_ids_;
  ProcessId next_process_ = 0;
  std::uint64_t other_faults_ = 0, crashes_ = 0, fenced_ = 0;
};

// Runs a seed; where the bits of the end are fixed (bsp + aggregated, nobody died), runs it once more without faults
// and on other shards, and compares them.
RunResult RunSeed(std::uint64_t seed, bool verbose);

}  // namespace tarn::sim
