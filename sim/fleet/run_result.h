// The result of a simulated run. Plain values.
#pragma once

#include <cstdint>
#include <string>

#include "core/codec/manifest.h"
#include "core/types.h"

namespace tarn::sim {

struct RunResult {
  std::uint64_t seed = 0;
  std::string failure;                // empty: nothing found
  std::uint64_t state_hash = 0;       // of all state machines at the end and the number of events
  std::uint64_t parameters_hash = 0;  // of all rows and slots
  std::uint64_t acked_push_ids = 0;
  std::uint64_t faults_fired = 0;
  std::uint64_t messages = 0, events = 0, crashes = 0, fenced = 0;
  std::uint64_t requests_saved = 0;  // rows from workers' caches, and pushes that were combined with others
  std::uint64_t rows_from_disk = 0, waited_for_rows = 0;  // read back, and messages that waited for them
  std::uint64_t workers_died = 0;                         // as counted by the scheduler
  bool job_failed = false;  // because of injected faults, such as a silent shard or a failed store
  bool resumed = false;     // and continued from a checkpoint
  bool stopped = false;     // cleanly, before its end
  bool drained = false;     // and every worker had completed its work
  bool bits_fixed = true;   // no deaths except in outages, no residuals lost, all shards there at the end
  std::uint64_t outages = 0, power_cuts = 0;
  std::uint64_t recoveries = 0;  // of shards, after which the state was compared
  std::uint64_t time_jumps = 0;
  std::uint64_t deaths = 0;  // deaths of single servers and schedulers, and failed syncs
  std::uint64_t stalls = 0;  // of the scheduler's disk, for longer than two leases
  TimeUs simulated_us = 0;
  // Whether the run had enough pushes and faults to count as a thorough test.
  bool busy() const { return acked_push_ids >= 1000 && faults_fired > 0; }
};

// Where a run continues from.
struct ResumePoint {
  Manifest manifest;
  std::string directory;
};

}  // namespace tarn::sim
