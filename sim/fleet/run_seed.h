// Runs one seed of the simulator.
#pragma once

#include <cstdint>

#include "sim/fleet/run_result.h"

namespace tarn::sim {

// Runs the fleet of a seed. If the final bits are determined (bsp and aggregated, no deaths), runs the job again
// without faults, with other numbers of servers and of shards per server, and compares the bits. Some runs, and those
// that failed or were stopped, then continue from a checkpoint, likewise with other numbers; determined bits must again
// be the same.
RunResult RunSeed(std::uint64_t seed, bool verbose);

}  // namespace tarn::sim
