// Whom a fleet waits for, in words for people. Changes nothing.
#pragma once

#include <string>

#include "core/job.h"
#include "core/types.h"
#include "scheduler/membership.h"

namespace tarn::scheduler {

// Before the fleet has formed: which servers and workers have not joined. Then: which shards and live workers have not
// been heard for kWaitNotePeriodUs, or half a lease if that is shorter; silence counts from `listening_since` at the
// earliest. Empty if there are none.
std::string WaitsFor(const Membership& membership, const FleetSection& fleet, TimeUs now, TimeUs listening_since);

}  // namespace tarn::scheduler
