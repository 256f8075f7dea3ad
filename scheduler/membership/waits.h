// Texts for users about the nodes that a fleet waits for. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "core/job/job.h"
#include "core/types.h"
#include "scheduler/membership/membership.h"

namespace tarn::scheduler {

// Before the fleet is complete: the servers and workers that have not joined. Then: the shards and live workers that
// have been silent for kWaitNotePeriodUs, or for half of lease_seconds if that is shorter; if there are none, the
// shards that have been loading rows for as long. Time counts from `listening_since` at the earliest. Empty: there are
// none.
std::string WaitsFor(const Membership& membership, const FleetSection& fleet, TimeUs now, TimeUs listening_since);

// What a checkpoint waits for.
struct CutWaits {
  std::optional<Clock> clock;      // to which workers must tick
  std::set<Incarnation> programs;  // whose state is missing: a worker saves it after its next tick (rule K9)
};
// Why others wait for a worker's ticks.
struct TickWaits {
  std::optional<std::uint64_t> bound;  // the lowest staleness bound of any table; nullopt: all are asp
  std::uint32_t backups = 0;           // number of slowest workers for which only checkpoints wait (rule C8)
  CutWaits cut;
};

// The live workers that are not silent but have not ticked for kWaitNotePeriodUs while others, or a checkpoint, wait
// for their ticks. Empty: there are none.
std::string WaitsForTicks(const Membership& membership, const TickWaits& waits, TimeUs now, TimeUs listening_since);

}  // namespace tarn::scheduler
