// What must hold while a simulated fleet runs and when it has ended, seen from outside its state machines.
#pragma once

#include <cstdint>
#include <map>

#include "core/codec/manifest.h"
#include "sim/fleet/context.h"
#include "sim/fleet/run_result.h"

namespace tarn::sim {

class FleetChecks {
 public:
  explicit FleetChecks(FleetContext& context) : context_(context) {}

  // A shard has sent something to the scheduler; it has arrived.
  void OnSentToScheduler(NodeId shard) { sent_[shard] = context_.now(); }
  void OnSchedulerHeard(const Message& message);
  // What a shard puts into `out` behind a message from a worker.
  void AfterShardHeard(const Process& shard, const Message& message, const Outbox& out, Peer from) const;
  void AfterShardStep(Process* shard) const;
  void AfterWorkerStep(Process* worker) const;
  void OnAllEnded();

  // Whether the network kept a shard from the scheduler for a lease.
  bool SilencedShard() const;

  // The job is done. died_early: a server had died before the last checkpoint was ordered. An error is a shard's: its
  // rows cannot be read.
  Status CheckEnd(bool died_early) const;
  // The job was stopped cleanly; fills in what is known of that.
  void CheckStop(RunResult* result) const;

 private:
  void CheckRefused(const Process& shard, const Message& message, const Outbox& out, Peer from) const;
  void CheckPaused(const Process& shard, const Outbox& out, Peer from) const;
  Status CheckFinal(Key key) const;

  FleetContext& context_;
  std::map<NodeId, TimeUs> sent_, heard_;  // by shard
};

}  // namespace tarn::sim
