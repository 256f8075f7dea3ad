// Runs one seed of the simulator.
#pragma once

#include <cstdint>

#include "sim/fleet/run_result.h"

namespace tarn::sim {

// Runs the fleet of a seed; where the bits of the end are fixed (bsp + aggregated, nobody died), runs it once more
// without faults and on other shards, and compares them. Some runs, and those whose job failed, then continue from a
// checkpoint with other shards, and must end as if nothing had happened.
RunResult RunSeed(std::uint64_t seed, bool verbose);

}  // namespace tarn::sim
