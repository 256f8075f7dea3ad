// A whole fleet under one seed: the scheduler, shards and workers as processes over the simulated network, with
// pauses, partitions, reconnects, crashes and rejoins, run to its end.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/codec/manifest.h"
#include "scheduler/scheduler.h"
#include "server/shard/shard.h"
#include "sim/disks/memory_files.h"
#include "sim/network.h"
#include "sim/oracle.h"
#include "sim/sim_blobs.h"
#include "sim/sim_log.h"
#include "sim/sim_store.h"
#include "sim/sim_worker.h"

namespace tarn::sim {

struct RunResult {
  std::uint64_t seed = 0;
  std::string failure;                // empty: nothing found
  std::uint64_t state_hash = 0;       // of all state machines at the end and the number of events
  std::uint64_t parameters_hash = 0;  // of all rows and slots
  std::uint64_t acked_push_ids = 0;
  std::uint64_t faults_fired = 0;
  std::uint64_t messages = 0, events = 0, crashes = 0, fenced = 0;
  std::uint64_t spared = 0;  // rows from workers' caches, and pushes that went along with others
  std::uint64_t rows_from_disk = 0, waited_for_rows = 0;  // read back, and messages that waited for them
  std::uint64_t workers_died = 0;                         // as the scheduler saw it
  bool job_failed = false;  // as it had to: a shard was silent for too long, or a store refused to write
  bool resumed = false;     // and went on from a checkpoint
  bool stopped = false;     // cleanly, before its end
  bool drained = false;     // and every worker had finished what it had begun
  bool bits_fixed = true;   // nobody died but in outages
  std::uint64_t outages = 0, power_cuts = 0;
  std::uint64_t recoveries = 0;  // of shards, after which the state was compared
  std::uint64_t time_jumps = 0;
  std::uint64_t deaths = 0;  // of servers and schedulers alone, and syncs that failed
  std::uint64_t stalls = 0;  // of the scheduler's disk, for longer than two leases
  TimeUs simulated_us = 0;
  bool busy() const { return acked_push_ids >= 1000 && faults_fired > 0; }
};

// Where a run goes on from.
struct ResumePoint {
  Manifest manifest;
  std::string directory;
};

class Fleet {
 public:
  // `disk` outlives the fleet. `resume`: copied; null: from the beginning.
  Fleet(const Scenario& scenario, SimDisk* disk, const ResumePoint* resume, bool verbose);
  ~Fleet();
  RunResult Run();
  // A checkpoint of it must have the right values, if it was cut at a clock: when it is whole, and after Run.
  void CheckCheckpoint(const ResumePoint& point);
  const std::string& failure() const { return oracle_.failure(); }

 private:
  struct Process;
  // What an outage may wait for.
  enum class Moment { kPushAcked, kTickAcked, kLeaseDone, kPartWritten, kWhole, kRecovered };

  ProcessId StartScheduler();
  void StartAll();
  scheduler::Scheduler* Scheduler();  // null while everything is down
  // fleet_outages.cc
  void PlanOutages();
  void PlanSlowSyncs();
  TimeUs SlowSync();
  void AwaitOutage();
  void Outage();
  void EndEverything();
  void EndAll();
  void ComeBack();
  void EndDisks();
  void SetClocks();
  void OnMoment(Moment moment);
  void OnJump(Incarnation worker);
  void RecoverSlowly();
  void SayLoading(ProcessId id, const Message& heartbeat, TimeUs until);
  void OnWorkerTold(const Process& worker, const Message& message);
  bool IsAhead(Incarnation worker) const;
  void OnSchedulerTold(const Message& message);
  std::unique_ptr<SimLog> MakeLog(ProcessId id, std::uint32_t index);
  void OnRecovered(ProcessId id, LogSequence last);
  void Witness(Process& shard);
  void TendLog(ProcessId id, Process& process);
  ProcessId StartShard(std::uint32_t index);
  SimSchedulerStore MakeSchedulerStore();
  std::unique_ptr<SimShardStore> MakeStore(ProcessId id, ShardId shard);
  std::unique_ptr<SimBlobStore> MakeBlobs(ProcessId id, ShardId shard);
  void CheckBlobs(const ResumePoint& point);
  void TakeBlobs();
  server::Tier MakeTier(ProcessId id);
  ProcessId StartWorker(std::uint32_t rank);
  // fleet_faults.cc
  void PlanFaults();
  void PlanPartitions();
  void PlanPauses();
  // away_us: how long; 0: by chance.
  void CrashWorker(std::uint32_t rank, TimeUs away_us = 0);
  void Pause(NodeId node, TimeUs length);
  void PlanTierFaults(ProcessId id);
  void PlanTimeJumps();
  void JumpInTime();
  void CutAtChange();
  void LoseFirstWord(const Process& shard);
  void CrashAtCut(Process& worker);
  // fleet_deaths.cc
  void PlanDeaths();
  void EndServer();
  void CheckServerIsMissed(std::uint32_t server, TimeUs died);
  void EndScheduler();
  bool GoesOnInPlace();
  double RateOf(NodeId node) const;
  TimeUs ToFleetTime(const Process& process, TimeUs at) const;
  void CheckPaused(const Process& shard, const Message& message, const Outbox& out, Peer from);
  bool SilencedShard() const;                  // the network kept one from the scheduler for a lease
  bool Excused(const Shutdown& reason) const;  // the job could not but fail

  void Restart(ProcessId id, std::uint32_t rank);
  void OverMemory(const Message& message, const std::function<void(Message)>& hand_over);
  void SettleSoon(ProcessId id, Process& p, Outbox* out);
  void CheckRefused(const Process& shard, const Message& message, const Outbox& out, Peer from);
  void Deliver(ProcessId to, Peer from, Message message);
  void Step(ProcessId id, std::function<void(Process&, Outbox*)> step);
  void AfterStep(ProcessId id, Process& process);
  void OnTold(const Message& message);
  void OnNewView(const View& view);
  TimeUs NowOf(const Process& process) const;
  void ArmTimer(ProcessId id, Process& process);
  void ConnectToShards(ProcessId id, Process& process);
  void CheckEnd();
  void CheckStop(RunResult* result);
  void CheckFinal(Key key);
  std::uint64_t StateHash() const;
  void Trace(const std::string& what);
  std::string DescribeAll() const;

  Scenario scenario_;
  bool verbose_;
  SimDisk* disk_;
  std::optional<ResumePoint> resume_;
  EventQueue events_;
  SplitMix rng_, tier_rng_, outage_rng_, time_rng_, turn_rng_, death_rng_;
  Oracle oracle_;
  Network network_;
  SimSchedulerStore scheduler_store_;
  std::map<std::uint32_t, server::MemoryDisk> logs_;  // by shard
  std::map<std::uint32_t, LogWitness> witnesses_;     // by shard
  std::map<std::uint32_t, TimeUs> unix_us_at_zero_;   // by shard: of the fleet's time, at the process at hand
  std::map<ProcessId, std::unique_ptr<Process>> processes_;
  std::vector<ProcessId> worker_of_rank_;
  ProcessId scheduler_id_ = 0;
  std::vector<ProcessId> shard_ids_;
  ProcessId next_process_ = 0;
  std::uint64_t other_faults_ = 0, crashes_ = 0, fenced_ = 0;
  ViewVersion last_view_, last_sent_view_;    // of the scheduler at hand
  std::map<std::uint32_t, TimeUs> next_cut_;  // by shard: when it may be cut off again
  TimeUs shard_slept_until_ = 0;
  std::map<NodeId, TimeUs> said_, heard_;  // by shard: to the scheduler, by it
  bool down_ = false;
  bool over_ = false;                     // the scheduler died, and nothing goes on
  std::uint64_t deaths_ = 0;              // of servers and schedulers alone, and failed syncs
  std::uint64_t server_deaths_ = 0;       // of them, in this run of the fleet
  std::set<std::uint32_t> failing_logs_;  // by shard: its next sync fails
  bool died_early_ = false;               // the server: before the last checkpoint was ordered
  bool sync_failed_ = false;              // in this run of the fleet
  std::uint64_t workers_died_ = 0;        // as a scheduler that is gone saw it
  std::optional<Moment> awaited_;         // by an outage that is due
  std::uint32_t jumps_awaited_;           // by outages
  CheckpointId last_order_, last_whole_;
  std::uint64_t outages_ = 0, power_cuts_ = 0, deaths_in_outages_ = 0, recoveries_ = 0, time_jumps_ = 0;
  std::uint64_t restarts_ = 0;          // of a job that had ended, in its folder
  scheduler::SchedulerState restored_;  // what the scheduler at hand came back from
};

// Runs a seed; where the bits of the end are fixed (bsp + aggregated, nobody died), runs it once more without faults
// and on other shards, and compares them. Some runs, and those whose job failed, then go on from a checkpoint with
// other shards, and must end as if nothing had been.
RunResult RunSeed(std::uint64_t seed, bool verbose);

}  // namespace tarn::sim
