// Draws of a scenario that concern its faults and its disks. Functions with a seed draw from a sequence of their own,
// so that the rest of the seed means what it meant before they were added.
#pragma once

#include <cstdint>
#include <string>

#include "core/hash.h"
#include "sim/scenario.h"

namespace tarn::sim {

void ChooseFaults(SplitMix& rng, std::uint32_t workers, Faults* f);
// A log, and outages that it has to survive.
void ChooseLog(std::uint64_t seed, Scenario* s);
// Rows on disk, beyond a memory that is too small for them.
void ChooseTier(std::uint64_t seed, Scenario* s);
// Restarts of workers in step: all are taken back to one clock, and begin together.
void ChooseRestart(std::uint64_t seed, Scenario* s);
// The scheduler's own disk.
void ChooseSchedulerDisk(std::uint64_t seed, Faults* f);
// Somebody stops the run cleanly, which then goes on from the checkpoint of the stop.
void ChooseStop(std::uint64_t seed, Scenario* s);
// What ends alone, and clocks that drift.
void ChooseDeaths(std::uint64_t seed, Scenario* s);

}  // namespace tarn::sim
