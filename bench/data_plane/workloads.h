// What push_pull measures: each function runs its operations against a fleet through the client library and prints its
// figures. They check what they pull: a figure of wrong rows is an error. One thread beside the client's own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "bench/data_plane/fleet.h"
#include "bench/data_plane/measure.h"
#include "core/error.h"
#include "worker/tarn.h"

namespace tarn::bench {

struct WorkloadOptions {
  std::string transport = "tcp";  // names the figures
  std::uint32_t servers = 1;
  std::uint32_t lanes = 1;  // of the worker to each
  Duration duration;
  std::uint64_t rows = 10'000'000;  // of a sparse table
  std::uint32_t dim = 16;
  std::size_t batch = 10'000;    // keys of a request, all different; at most `rows`
  std::size_t depth = 8;         // sparse requests in flight
  std::size_t small_depth = 64;  // of 1 KB
};

// Random rows of a large table, SGD and row-wise Adagrad: pulls and pushes from keys (the client plans and expands) and
// from plans made before (what training does, which plans ahead).
Status MeasureSparse(const WorkloadOptions& options, const Fleet& fleet, Client* client);
// Whole tensors of 1 MB and 16 MB.
Status MeasureDense(const WorkloadOptions& options, const Fleet& fleet, Client* client);
// Rows of 1 KB, many in flight and one.
Status MeasureSmall(const WorkloadOptions& options, const Fleet& fleet, Client* client);

}  // namespace tarn::bench
