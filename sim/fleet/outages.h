// What ends everything at once: all processes, or the power with what was not synced; and what goes wrong as they come
// back. An outage may wait for a moment after which nothing may be forgotten.
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
  // What an outage may wait for.
  enum class Moment { kPushAcked, kTickAcked, kLeaseDone, kPartWritten, kWhole, kRecovered };

  // All outlive it.
  Outages(FleetContext& context, ShardLogs* logs, NodeFaults* faults, SimSchedulerStore* store);

  void Plan();
  void OnMoment(Moment moment);
  // A worker or the scheduler has handled a message.
  void OnWorkerHeard(const Process& worker, const Message& message);
  void OnSchedulerHeard(const Message& message);

  // Every process ends; some time later everything is started again.
  void EndAll();
  // At once, if everything is down.
  void ComeBack();

  void AddTo(RunResult* result) const;

 private:
  void Await();
  void Happen();
  void EndEverything();
  void EndDisks();
  void RecoverSlowly();
  void OnJump(Incarnation worker);
  bool IsAhead(Incarnation worker) const;

  FleetContext& context_;
  ShardLogs* logs_;
  NodeFaults* faults_;
  SimSchedulerStore* store_;
  std::optional<Moment> awaited_;  // by an outage that is due
  std::uint32_t jumps_awaited_;    // by outages
  std::uint64_t outages_ = 0, power_cuts_ = 0;
};

}  // namespace tarn::sim
