// Checks a complete checkpoint of a simulated fleet. Free functions.
#pragma once

#include <map>

#include "core/types.h"
#include "sim/fleet/context.h"
#include "sim/fleet/run_result.h"
#include "sim/sim_store.h"

namespace tarn::sim {

// The values of the oracle table in the checkpoint.
std::map<Key, float> ValuesIn(const SimDisk& disk, const ResumePoint& point);

// Checks the values of the oracle table in the checkpoint, if it was cut at a clock.
void CheckCheckpoint(const Scenario& scenario, const SimDisk& disk, const ResumePoint& point, Oracle* oracle);

// Checks that the checkpoint contains the state of every worker that was live before the cut; in bsp, its state at the
// clock of the cut.
void CheckBlobs(FleetContext& context, const ResumePoint& point);

// Checks that each program had the state that the checkpoint contains; in a cut at a clock, it had this state at that
// clock.
void CheckProgramStates(FleetContext& context, const ResumePoint& point);
// Checks the checkpoint of a drained stop: the state of each program corresponds to the recorded data positions.
void CheckDrainedStates(FleetContext& context, const ResumePoint& point);

// Passes the state of workers in the checkpoint to the oracle, from which the workers of the resumed run take it.
void TakeBlobs(FleetContext& context, const ResumePoint& point);

}  // namespace tarn::sim
