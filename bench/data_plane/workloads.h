// The measurements of push_pull: each function runs its operations against a fleet through the client library and
// prints its figures. A sample of pulled rows is verified once per table; a wrong value is an error. One thread besides
// the client's.
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
  std::string transport = "tcp";  // part of the figures' names
  std::uint32_t servers = 1;
  std::uint32_t lanes = 1;  // of the worker to each shard
  Duration duration;
  std::uint64_t rows = 10'000'000;  // of a sparse table
  std::uint32_t dim = 16;
  std::size_t batch = 10'000;    // distinct keys per request; at most `rows`
  std::size_t depth = 8;         // sparse requests in flight
  std::size_t small_depth = 64;  // requests of 1 KB in flight
};

// Random rows of a large table: pulls and pushes with SGD, pushes with row-wise Adagrad. Each is measured with keys
// (the client plans and expands) and with existing plans (as in training, which plans ahead).
Status MeasureSparse(const WorkloadOptions& options, const Fleet& fleet, Client* client);
// Whole tensors of 1 MB and 16 MB.
Status MeasureDense(const WorkloadOptions& options, const Fleet& fleet, Client* client);
// Rows of 1 KB, with many requests in flight and with one.
Status MeasureSmall(const WorkloadOptions& options, const Fleet& fleet, Client* client);

}  // namespace tarn::bench
