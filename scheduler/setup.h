// What the options of a scheduler mean for its parts. Free functions of values.
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

// What every step needs of the options.
struct Setup {
  explicit Setup(const SchedulerOptions& options);
  bool has_log() const { return job.storage.durability == Durability::kLog; }
  bool keeps_checkpoints() const { return job.storage.durability != Durability::kNone; }

  Job job;
  std::uint64_t fingerprint = 0;  // of the job
  TimeUs heartbeat_us = 0, lease_us = 0;
  // Clocks mean the same on every shard for some table, so that a checkpoint has to lie between two of them (rule K1).
  bool cuts_at_clock = false;
  Clock start_clock;               // of the run, or of the checkpoint that it continues from
  std::string after_a_lost_shard;  // for people: what is lost when a shard dies, and how to continue
};

// With `resume` and what goes with it as the state has it, where the run is restored from one.
SchedulerOptions Prepared(SchedulerOptions options);

// Of prepared options.
Membership::Options MembershipOptions(const SchedulerOptions& options, const Setup& setup);
CheckpointCoordinator::Options CoordinatorOptions(const SchedulerOptions& options, const Setup& setup);
Epochs::Options EpochsOptions(const SchedulerOptions& options);
RunRecord::Options RecordOptions(const SchedulerOptions& options, const Setup& setup);

}  // namespace tarn::scheduler
