// Derives the options of the scheduler's parts from its own. Pure functions.
#pragma once

#include <cstdint>
#include <string>

#include "core/job/job.h"
#include "scheduler/checkpoints/checkpoint_coordinator.h"
#include "scheduler/epochs/epochs.h"
#include "scheduler/membership/membership.h"
#include "scheduler/run_record.h"
#include "scheduler/scheduler.h"

namespace tarn::scheduler {

// Whether some table is bsp or aggregated, so that checkpoints are cut between two clocks (rule K1).
bool CutsAtClock(const Job& job);

// Values that every step needs.
struct Setup {
  explicit Setup(const SchedulerOptions& options);
  bool has_log() const { return job.storage.durability == Durability::kLog; }
  bool keeps_checkpoints() const { return job.storage.durability != Durability::kNone; }

  Job job;
  std::uint64_t fingerprint = 0;  // of the job
  TimeUs heartbeat_us = 0, lease_us = 0;
  Clock start_clock;               // of the run, or of the checkpoint from which it continues
  std::string after_a_lost_shard;  // text for users: what is lost when a shard dies, and how to continue
};

// If the run is restored from a state, sets `resume` and related options from it.
SchedulerOptions Prepared(SchedulerOptions options);

// For prepared options.
Membership::Options MembershipOptions(const SchedulerOptions& options, const Setup& setup);
CheckpointCoordinator::Options CoordinatorOptions(const SchedulerOptions& options, const Setup& setup);
Epochs::Options EpochsOptions(const SchedulerOptions& options);
RunRecord::Options RecordOptions(const SchedulerOptions& options, const Setup& setup);

}  // namespace tarn::scheduler
