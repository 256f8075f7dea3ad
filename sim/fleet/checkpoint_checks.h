// What must hold of a whole checkpoint of a simulated fleet. Free functions.
#pragma once

#include <map>

#include "core/types.h"
#include "sim/fleet/context.h"
#include "sim/fleet/run_result.h"
#include "sim/sim_store.h"

namespace tarn::sim {

// The oracle table as the checkpoint has it.
std::map<Key, float> ValuesIn(const SimDisk& disk, const ResumePoint& point);

// The checkpoint has the right values, if it was cut at a clock.
void CheckCheckpoint(const Scenario& scenario, const SimDisk& disk, const ResumePoint& point, Oracle* oracle);

// It holds what every worker that was there before the cut had kept; in bsp, what it had kept at that very clock.
void CheckBlobs(FleetContext& context, const ResumePoint& point);

// Workers continue from what the checkpoint has of theirs.
void TakeBlobs(FleetContext& context, const ResumePoint& point);

}  // namespace tarn::sim
