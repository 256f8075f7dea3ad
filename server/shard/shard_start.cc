#include "server/shard/shard_start.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "core/limits.h"
#include "server/log/shard_log.h"
#include "server/shard/log_replay.h"

namespace tarn::server {

namespace {

// The end of an error message: how to continue if the log cannot be restored. Empty if the log itself may be intact
// (kUnavailable, kIo).
std::string AdviceWithoutLog(ErrorCode code, const std::string& checkpoint) {
  if (code == ErrorCode::kUnavailable || code == ErrorCode::kIo) return {};
  if (checkpoint.empty()) return "; there is no checkpoint from which to continue without this log";
  return fmt::format(
      "; without this log a run can continue from {}, or an earlier one, in a new folder: --resume CHECKPOINT",
      checkpoint);
}

// Rule G5. The scheduler stores its state before it sends a view, and a restart continues after that state.
Status CheckIsNewer(ViewVersion theirs, ViewVersion ours) {
  if (theirs > ours || theirs == ViewVersion(0)) return {};  // 0: a Welcome without a view
  return Fail(ErrorCode::kCorrupt,
              fmt::format("it contains view {}, but the scheduler continues from view {}: the scheduler.state in the "
                          "run's folder is an older one, expected the last that the run wrote",
                          ours.value, theirs.value));
}

// Null: all rows stay in memory.
Expected<std::unique_ptr<Residency>> MakeTier(const ShardOptions& options, const Job& job, std::size_t partitions) {
  if (!options.make_tier) return nullptr;
  auto tier = options.make_tier(job);
  if (!tier) return std::unexpected(tier.error());
  if (!tier->store) return nullptr;
  return std::make_unique<Residency>(
      ResidencyOptions{.limit_bytes = tier->limit_bytes, .places = static_cast<std::uint32_t>(partitions)},
      std::move(tier->store));
}

Status LoadCheckpoint(const Welcome& welcome, ShardParts* parts) {
  TARN_RETURN_IF_ERROR(parts->view.AddTables(welcome.view.tables));
  if (welcome.resume_directory.empty()) return {};
  return parts->cuts.Load(welcome.resume_directory, RowLoader::Unknown::kRefused);
}

Status Recover(const ShardBase& base, const LogIdentity& identity, const Welcome& welcome, ShardParts* parts) {
  LogReplay replay(welcome.resume_directory, {.rows = &parts->rows,
                                              .view = &parts->view,
                                              .clocks = &parts->clocks,
                                              .pushes = &parts->pushes,
                                              .cuts = &parts->cuts,
                                              .stop = base.stop,
                                              .observer = base.observer,
                                              .other_bytes = [parts] { return parts->WaitingBytes(); }});
  TARN_RETURN_IF_ERROR(base.options.log->Recover(identity, welcome.log.from, welcome.log.at_least, replay));
  if (!replay.restored()) return Fail(ErrorCode::kCorrupt, "the log has no head that is durable");
  TARN_RETURN_IF_ERROR(CheckIsNewer(welcome.view.version, parts->view.view().version));
  parts->rows.ForgetCounters();  // they count work before the restart, which was already reported
  return {};
}

Status StartLog(const ShardBase& base, const Welcome& welcome, ShardParts* parts) {
  const std::string who = fmt::format("shard {}", base.options.shard.value);
  ShardLog* log = base.options.log;
  if (log == nullptr || welcome.log.run == 0)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the job's durability is \"log\", but the {} has none: a server needs --run-dir", who,
                            log == nullptr ? "shard" : "scheduler"));
  const LogIdentity identity{welcome.log.run, base.step->job(), base.options.shard};
  if (welcome.log.recover) {
    if (const Status status = Recover(base, identity, welcome, parts); !status)
      return Fail(status.error().code, fmt::format("{}: log: {}{}", who, status.error().message,
                                                   AdviceWithoutLog(status.error().code, welcome.resume_directory)));
    base.outbox->Begin(welcome.log.from);
    parts->soft_state().BeginSegment(ShardLog::kContinues, base.outbox);
    // Orders from before the restart are void (rule G3), so the clocks that waited for their cuts close now. A replay
    // of this segment does the same.
    parts->clocks.NoteCut(parts->cuts.newest_order());
    return parts->view.view().version.value != 0 ? parts->clocks.CloseReady() : Status();
  }
  if (const Status status = log->Open(identity); !status)
    return Fail(status.error().code, fmt::format("{}: log: {}", who, status.error().message));
  TARN_RETURN_IF_ERROR(LoadCheckpoint(welcome, parts));
  parts->view.NoteTables(welcome.view.tables);
  base.outbox->Begin(CheckpointId(0));
  parts->soft_state().BeginSegment(welcome.log.from, base.outbox);
  return {};
}

}  // namespace

Expected<std::unique_ptr<ShardParts>> MakeParts(const ShardBase& base, const Job& job, const RouteMap& routes) {
  if (routes.partition_bits > limits::kPartitionBitsMax || routes.owners.size() != std::size_t{1}
                                                                                       << routes.partition_bits)
    return Fail(ErrorCode::kMalformed,
                fmt::format("first view: {} owners of 2^{} partitions", routes.owners.size(), routes.partition_bits));
  StoreOptions store{.job_seed = job.job.seed,
                     .partition_bits = routes.partition_bits,
                     .owned = {},
                     .removed_keys_max = base.options.removed_keys_max};
  for (std::uint32_t p = 0; p < routes.owners.size(); ++p)
    if (routes.owners[p] == base.options.shard) store.owned.push_back(PartitionId(p));
  auto tier = MakeTier(base.options, job, store.owned.size());
  if (!tier) return std::unexpected(tier.error());
  const Residency* made = tier->get();
  auto parts = std::make_unique<ShardParts>(base, routes, std::move(store), *std::move(tier));
  if (made != nullptr) parts->SetMemoryLimit(made->limit_bytes());
  return parts;
}

Status StartState(const ShardBase& base, const Job& job, const Welcome& welcome, ShardParts* parts) {
  if (job.storage.durability == Durability::kLog) return StartLog(base, welcome, parts);
  return LoadCheckpoint(welcome, parts);
}

}  // namespace tarn::server
