// Measures ps-lite between processes of this machine, for ps_lite_peer. Builds without ps-lite's sources use
// no_ps_lite.cc. One thread, except ps-lite's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/data_plane/measure.h"

namespace tarn::bench {

struct PsLiteOptions {
  std::vector<std::string> only;  // sparse, dense, small
  std::uint64_t rows = 10'000'000;
  std::uint64_t dim = 16;
  std::size_t batch = 10'000;
  std::size_t depth = 8;
  std::size_t small_depth = 64;
  Duration duration;

  bool Wants(const std::string& what) const;
};

// Whether this build has ps-lite.
bool HasPsLite();

// Prints the figures over `transport`: "tcp", or "ipc", ps-lite's own path between processes of one host. Starts
// scheduler, server and worker as processes. Exits on failure. Call it while no other thread runs.
void MeasurePsLite(const PsLiteOptions& options, const std::string& transport);

}  // namespace tarn::bench
