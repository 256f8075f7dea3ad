#include "sim/fleet/context.h"

#include <cstdio>
#include <utility>

namespace tarn::sim {

Dice::Dice(std::uint64_t draw)
    : main(Mix64(draw ^ 0x666c74)),
      tier(Mix64(draw ^ 0x636f6c64)),
      outage(Mix64(draw ^ 0x6f757467)),
      time(Mix64(draw ^ 0x74696d65)),
      turn(Mix64(draw ^ 0x7475726e)),
      death(Mix64(draw ^ 0x6469656d)) {}

FleetContext::FleetContext(const Scenario& the_scenario, SimDisk* the_disk, FleetControl* the_control, bool later,
                           bool is_verbose, Network::Deliver deliver)
    : scenario(the_scenario),
      disk(*the_disk),
      control(*the_control),
      verbose(is_verbose),
      checkpoints(later ? "resumed" : "checkpoints"),
      dice(scenario.draw),
      oracle(scenario),
      network(&events, scenario.faults, scenario.draw, scenario.through_frames, std::move(deliver)),
      clocks(&scenario, &events, later) {}

void FleetContext::Trace(const std::string& what) const {
  if (verbose) std::fprintf(stderr, "%10.6f  %s\n", double(events.now()) * 1e-6, what.c_str());
}

}  // namespace tarn::sim
