// Whom a fleet waits for, in words for people. Changes nothing.
#pragma once

#include <string>

#include "core/job.h"
#include "core/types.h"
#include "scheduler/membership.h"

namespace tarn::scheduler {

// How often that is said, and how long a node of the fleet must have been silent: half a lease at most.
inline constexpr TimeUs kWaitsPeriodUs = 10'000'000;

// Before the fleet has formed: which servers and workers have not joined. Then: which shards and live workers have
// long not been heard; silence counts from `listening_since` at the earliest. Empty if there are none.
std::string WaitsFor(const Membership& membership, const FleetSection& fleet, TimeUs now, TimeUs listening_since);

}  // namespace tarn::scheduler
