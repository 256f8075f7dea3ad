// Random choices of a scenario that concern its faults and its disks. Functions with a `seed` use a separate random
// sequence, so that adding them did not change the rest of existing seeds.
#pragma once

#include <cstdint>
#include <string>

#include "core/hash.h"
#include "sim/scenario.h"

namespace tarn::sim {

void ChooseFaults(SplitMix& rng, std::uint32_t workers, Faults* f);
// A log, and outages that it must survive.
void ChooseLog(std::uint64_t seed, Scenario* s);
// A memory budget that is too small for all rows, with the others on disk.
void ChooseTier(std::uint64_t seed, Scenario* s);
// Restarts of workers with equal clocks: all are set back to one clock, and continue together.
void ChooseRestart(std::uint64_t seed, Scenario* s);
// The scheduler's own disk.
void ChooseSchedulerDisk(std::uint64_t seed, Faults* f);
// A clean stop of the run, which then continues from the checkpoint of the stop.
void ChooseStop(std::uint64_t seed, Scenario* s);
// Deaths of single processes, and clocks that drift.
void ChooseDeaths(std::uint64_t seed, Scenario* s);
// Late ticks: workers compute between their pushes of a clock and its tick.
void ChooseLateTicks(std::uint64_t seed, Scenario* s);
// Programs with state in checkpoints. Not in jobs with a log, which does not contain this state.
void ChooseProgramState(std::uint64_t seed, Scenario* s);
// Such programs wait for their pushes before they tick, in runs that are stopped.
void ChooseWaits(std::uint64_t seed, Scenario* s);

}  // namespace tarn::sim
