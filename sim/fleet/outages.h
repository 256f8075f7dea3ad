// Simulates outages of the whole fleet: all processes end, or the power fails and unsynced data is lost. Also simulates
// faults during the restart. An outage may wait for an event after which no state may be lost.
#pragma once

#include <cstdint>
#include <optional>

#include "sim/fleet/context.h"
#include "sim/fleet/node_faults.h"
#include "sim/fleet/run_result.h"
#include "sim/fleet/shard_logs.h"

namespace tarn::sim {

class Outages {
 public:
  // Events that an outage may wait for. kLeaseDone: a worker that is ahead has reported a finished lease. kPartWritten:
  // a shard has reported its part of a checkpoint. kWhole: a checkpoint is complete. kRecovered: a shard has read its
  // log.
  enum class Moment { kPushAcked, kTickAcked, kLeaseDone, kPartWritten, kWhole, kRecovered };

  // All arguments outlive this object.
  Outages(FleetContext& context, ShardLogs* logs, NodeFaults* faults, SimSchedulerStore* store);

  void Plan();
  void OnMoment(Moment moment);
  // Must be called after a worker or the scheduler has handled a message.
  void OnWorkerReceived(const Process& worker, const Message& message);
  void OnSchedulerReceived(const Message& message);

  // Ends every process, and restarts all after a random time.
  void EndAll();
  // Restarts all processes now, if they are down.
  void ComeBack();

  void AddTo(RunResult* result) const;

 private:
  void OnDue();
  void Trigger();
  void EndEverything();
  void EndDisks();
  void RecoverSlowly();
  void OnJump(Incarnation worker);
  bool IsAhead(Incarnation worker) const;

  FleetContext& context_;
  ShardLogs* logs_;
  NodeFaults* faults_;
  SimSchedulerStore* store_;
  std::optional<Moment> awaited_;  // the event that a due outage waits for
  std::uint32_t jumps_awaited_;    // jumps that outages still wait for
  std::uint64_t outages_ = 0, power_cuts_ = 0;
};

}  // namespace tarn::sim
