// Invariants of a simulated fleet, during the run and after its end, checked from outside its state machines.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "core/codec/manifest.h"
#include "sim/fleet/context.h"
#include "sim/fleet/run_result.h"

namespace tarn::sim {

class FleetChecks {
 public:
  explicit FleetChecks(FleetContext& context) : context_(context) {}

  // OnSentToScheduler: a shard has sent a message to the scheduler. OnSchedulerReceived: it has arrived.
  void OnSentToScheduler(NodeId shard) { sent_[shard] = context_.now(); }
  // A shard has sent a message to the scheduler or a worker, within a step or at its end.
  void OnShardSent(ProcessId id, const Process& shard, const Outgoing& outgoing);
  void BeforeShardReceives(Peer from) { answers_ = {.to = from}; }
  void OnSchedulerReceived(const Message& message);
  // Checks the answers in `out` of a shard to a message from a worker.
  void AfterShardReceived(const Process& shard, const Message& message, const Outbox& out, Peer from) const;
  void AfterShardStep(Process* shard) const;
  void AfterWorkerStep(Process* worker) const;
  void OnAllEnded();

  // Whether the network isolated a shard from the scheduler for a lease.
  bool SilencedShard() const;

  // Checks the end of the job. `died_early`: a server had died before the last checkpoint was ordered. An error means
  // that rows of a shard cannot be read.
  Status CheckEnd(bool died_early) const;
  // Checks a clean stop of the job, and fills in its results.
  void CheckStop(RunResult* result) const;

 private:
  void CheckOrigin(const Process& shard, const Message& message) const;
  void NoteRows(const Process& shard, const PushPart& push) const;
  void CheckRefused(const Process& shard, const Message& message) const;
  void CheckPaused(const Process& shard) const;
  void CheckPulls(const Process& shard, ProcessId worker) const;
  Status CheckFinal(Key key) const;
  // The newest complete checkpoint of this run; not of one before, from which it continues.
  std::optional<ResumePoint> NewestCheckpoint() const;
  void CheckLastCut(const std::optional<ResumePoint>& newest) const;  // rule K12

  FleetContext& context_;
  std::map<NodeId, TimeUs> sent_, received_;  // by shard
  struct {
    Peer to;  // the worker whose message a shard handles
    bool sent = false;
  } answers_;
};

}  // namespace tarn::sim
