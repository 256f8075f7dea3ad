// The clocks of the nodes: each has its own rate, clocks of shards jump, and the time of day differs.
#pragma once

#include <cstdint>
#include <map>

#include "core/hash.h"
#include "sim/event_queue.h"
#include "sim/fleet/process.h"
#include "sim/scenario.h"

namespace tarn::sim {

class SimClocks {
 public:
  // Both outlive this object. `later`: the run continues from a checkpoint of an earlier run.
  SimClocks(const Scenario* scenario, const EventQueue* events, bool later);

  TimeUs NowOf(const Process& process) const;
  // The time of the fleet at which the process's clock shows `at`.
  TimeUs ToFleetTime(const Process& process, TimeUs at) const;

  // The time of day of a shard that starts now, at the fleet's time 0.
  TimeUs UnixUsAtZero(std::uint32_t shard) const { return unix_us_at_zero_.at(shard); }
  // Must be called when the shard's process has ended; the next one starts with its clock.
  void OnEnd(const Process& shard) { unix_us_at_zero_.at(shard.rank) += shard.ahead; }
  // Must be called when all machines restart: advances the time of day of some shards, which were off for long, and
  // sets back that of others. Only in runs with expiry in seconds.
  void Disturb(SplitMix* dice);

 private:
  double RateOf(NodeId node) const;

  const Scenario* scenario_;
  const EventQueue* events_;
  std::map<std::uint32_t, TimeUs> unix_us_at_zero_;  // by shard
};

}  // namespace tarn::sim
