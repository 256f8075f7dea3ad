#include "scheduler/setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "scheduler/leases/data_sets.h"

namespace tarn::scheduler {
namespace {

TimeUs ToUs(double seconds) { return static_cast<TimeUs>(seconds * 1e6); }

// Whether the bits of the parameters depend only on the data, not on times or the order of messages.
bool IsExact(const Job& job) {
  return IsLockstep(job.consistency) && std::ranges::all_of(job.tables | std::views::values, [](const auto& table) {
           return !table.has_consistency || IsLockstep(table.consistency);
         });
}

template <typename Holds>
bool AnyTable(const Job& job, const Holds& holds) {
  return holds(job.consistency) || std::ranges::any_of(job.tables | std::views::values, [&](const auto& table) {
           return table.has_consistency && holds(table.consistency);
         });
}

// Whether some table is ssp. If programs keep state, checkpoints of such a job are cut at a clock (rule K1): its
// workers are a bounded number of clocks apart, so all reach the clock of the cut soon. If they drained at different
// clocks instead (rule K11), one could wait for pushes of a worker that has drained at an earlier clock.
bool HasBoundedTable(const Job& job) {
  return AnyTable(job, [](const ConsistencySpec& spec) { return spec.mode == ConsistencyMode::kSsp; });
}

std::string AfterALostShard(const SchedulerOptions& options) {
  const std::size_t slash = options.checkpoints_directory.rfind('/');
  const std::string run = slash == std::string::npos ? "RUN_DIR" : options.checkpoints_directory.substr(0, slash);
  switch (options.job.storage.durability) {
    case Durability::kNone: break;
    case Durability::kCheckpoint:
      return fmt::format(
          "changes since the last checkpoint are lost. To continue from that checkpoint: tools/launch --resume {}",
          run);
    case Durability::kLog:
      return fmt::format(
          "nothing acknowledged is lost, unless programs keep state in checkpoints: then the run continues from its "
          "newest checkpoint. To continue: tools/launch --resume {}",
          run);
  }
  return "its rows are lost, and the job has no checkpoints (storage.durability = \"none\")";
}

Checkpoints::Options CheckpointsOptions(const SchedulerOptions& options) {
  Checkpoints::Options out;
  out.storage = options.job.storage;
  out.directory = options.checkpoints_directory;
  out.last = options.last_checkpoint;
  out.kept = options.kept_checkpoints;
  if (options.resume == nullptr) return out;
  out.last = std::max(out.last, options.resume->id);
  out.best = options.resume->best_checkpoint;
  out.resumed_directory = options.resume_directory;
  // A checkpoint and its base must have the same partitions. A restored run keeps its partitions.
  if (options.restore != nullptr || options.resume->partition_bits == options.job.fleet.partition_bits)
    out.resumed = options.resume->generations;
  out.start_clock = options.resume->resume_clock;
  if (options.restore != nullptr) out.kept = options.restore->kept;
  return out;
}

WholeCheckpoint WholeOf(const SchedulerOptions& options) {
  if (const SchedulerState* state = options.restore; state != nullptr)
    return {state->whole, state->whole_directory, state->whole_files};
  if (options.resume == nullptr) return {};
  return {options.resume->id, options.resume_directory, FilesHash(*options.resume)};
}

}  // namespace

bool CutsAtClock(const Job& job) {
  return AnyTable(job, [](const ConsistencySpec& spec) {
    return spec.apply == ApplyMode::kAggregated || spec.mode == ConsistencyMode::kBsp;
  });
}

Setup::Setup(const SchedulerOptions& options)
    : job(options.job),
      fingerprint(Fingerprint(options.job)),
      heartbeat_us(ToUs(options.job.fleet.heartbeat_seconds)),
      lease_us(ToUs(options.job.fleet.lease_seconds)),
      start_clock(options.resume != nullptr ? options.resume->resume_clock : Clock(0)),
      after_a_lost_shard(AfterALostShard(options)) {}

SchedulerOptions Prepared(SchedulerOptions options) {
  if (options.restore == nullptr) return options;
  options.run = options.restore->run;
  options.resume = &options.restore->progress;
  options.resume_directory = options.restore->whole_directory;
  return options;
}

Membership::Options MembershipOptions(const SchedulerOptions& options, const Setup& setup) {
  const FleetSection& fleet = options.job.fleet;
  Membership::Options out;
  out.shards = fleet.servers * fleet.shards;
  out.shards_per_server = fleet.shards;
  out.workers = fleet.workers;
  out.partition_bits = fleet.partition_bits;
  out.lease_us = setup.lease_us;
  out.heartbeat_us = setup.heartbeat_us;
  out.job_text = options.job_text;
  out.after_a_lost_shard = setup.after_a_lost_shard;
  out.first_incarnation = Incarnation(std::max<std::uint64_t>(options.first_incarnation, 1));
  out.start_clock = setup.start_clock;
  if (setup.has_log())
    out.log = {.run = options.run, .recover = options.restore != nullptr, .from = WholeOf(options).id};
  out.ends_together = IsExact(options.job);
  out.http = options.http;
  if (options.resume == nullptr) return out;
  if (options.restore != nullptr) out.partition_bits = options.resume->partition_bits;  // those of the logs
  out.resume_directory = options.resume_directory;
  for (const WorkerBlob& blob : options.resume->blobs) out.blobs.push_back({blob.rank.value, blob.file.bytes});
  out.first_incarnation = std::max(out.first_incarnation, options.resume->next_incarnation);
  return out;
}

CheckpointCoordinator::Options CoordinatorOptions(const SchedulerOptions& options, const Setup& setup) {
  const auto keeps_residuals = [](const auto& table) { return KeepsResiduals(table.push_codec); };
  return {.has_log = setup.has_log(),
          .at_clock = CutsAtClock(options.job),
          .at_clock_for_programs = HasBoundedTable(options.job),
          .has_residuals = std::ranges::any_of(options.job.tables | std::views::values, keeps_residuals),
          .batch_rows = DataRowsPerPushMax(options.job),
          .checkpoints = CheckpointsOptions(options),
          .whole = WholeOf(options)};
}

Epochs::Options EpochsOptions(const SchedulerOptions& options) {
  Epochs::Options out{.storage = options.job.storage, .train = options.job.train};
  out.has_auc = HasAuc(options.job);
  out.best_wanted = options.restore != nullptr && options.restore->best_wanted;
  if (options.resume == nullptr) return out;
  out.finished = options.resume->epochs;
  out.train_time = TrainTime(options.resume->seconds, options.resume->train_seconds);
  out.best_lost = options.resume->best_lost;
  return out;
}

RunRecord::Options RecordOptions(const SchedulerOptions& options, const Setup& setup) {
  RunRecord::Options out{.job_text = options.job_text,
                         .fingerprint = setup.fingerprint,
                         .run = options.run,
                         .epochs = options.job.train.epochs};
  if (options.resume == nullptr) return out;
  out.earlier_samples = options.resume->samples;
  out.earlier_died = options.resume->workers_died;
  out.batches_repeated = options.resume->batches_repeated + options.resume->batches_behind;
  return out;
}

}  // namespace tarn::scheduler
