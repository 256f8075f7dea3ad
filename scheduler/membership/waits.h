// Whom a fleet waits for, in words for people. Changes nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/job/job.h"
#include "core/types.h"
#include "scheduler/membership/membership.h"

namespace tarn::scheduler {

// Before the fleet has formed: which servers and workers have not joined. Then: which shards and live workers have not
// been heard for kWaitNotePeriodUs, or half a lease if that is shorter; silence counts from `listening_since` at the
// earliest. Empty if there are none.
std::string WaitsFor(const Membership& membership, const FleetSection& fleet, TimeUs now, TimeUs listening_since);

// What makes others wait for a worker's ticks.
struct TickWaits {
  std::optional<std::uint64_t> bound;  // the least staleness bound of any table; none: all are asp
  std::optional<Clock> cut;            // the clock that workers must tick to for a checkpoint
};

// Which live workers, though they are heard, have not ticked for kWaitNotePeriodUs while others, or a checkpoint, wait
// for that, and since when. Empty if there are none.
std::string WaitsForTicks(const Membership& membership, const TickWaits& waits, TimeUs now, TimeUs listening_since);

}  // namespace tarn::scheduler
