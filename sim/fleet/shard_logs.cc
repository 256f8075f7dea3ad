#include "sim/fleet/shard_logs.h"

#include <fmt/format.h>

#include <utility>

namespace tarn::sim {

ShardLogs::ShardLogs(FleetContext& context, std::function<void()> recovered)
    : context_(context), recovered_(std::move(recovered)) {}

std::unique_ptr<SimLog> ShardLogs::Make(ProcessId id, std::uint32_t shard) {
  disks_[shard].FailSyncs([this, shard] {
    if (failing_.erase(shard) == 0) return false;
    context_.Trace(fmt::format("a sync of the log of shard {} fails", shard));
    ++failed_syncs_;
    return sync_failed_ = true;
  });
  return std::make_unique<SimLog>(&disks_[shard], fmt::format("shard-{}", shard),
                                  [this, id](LogSequence last) { OnRecovered(id, last); });
}

void ShardLogs::PlanSlowSyncs() {
  SplitMix rng(Mix64(context_.scenario.draw ^ 0x64697364));
  for (std::uint32_t i = 0; i < context_.scenario.faults.slow_syncs; ++i)
    context_.events.At(50'000 + TimeUs(rng.Below(std::uint64_t(context_.scenario.faults.until_us))),
                       [this, which = rng.Below(context_.scenario.shards)] {
                         Process* shard = context_.processes.Find(context_.processes.shards()[which]);
                         if (shard == nullptr) return;
                         shard->slow_sync = true;
                         ++slow_syncs_;
                       });
}

TimeUs ShardLogs::SlowSync() {
  const TimeUs lease = context_.lease_us();
  return lease + TimeUs(context_.dice.time.Below(2 * std::uint64_t(lease)));
}

Clock ShardLogs::Ticked(std::uint32_t shard, Incarnation worker) const {
  const auto witness = witnesses_.find(shard);
  return witness == witnesses_.end() ? Clock() : witness->second.Ticked(worker);
}

void ShardLogs::OnAllEnded() {
  sync_failed_ = false;
  failing_.clear();
}

void ShardLogs::AddTo(RunResult* result) const {
  result->deaths += failed_syncs_;
  result->recoveries = recoveries_;
  result->faults_fired += failed_syncs_ + slow_syncs_;
}

void ShardLogs::OnRecovered(ProcessId id, LogSequence last) {
  Process& p = *context_.processes.Find(id);
  LogWitness& witness = witnesses_[p.rank];
  std::string wrong = witness.CheckWatermarks(
      workers_, [&p](Incarnation worker, PartitionId partition) { return p.checker->Last(worker, partition); });
  const auto hash = p.shard->DurableHash();
  if (wrong.empty() && hash) wrong = witness.CheckState(last, *hash, &recoveries_);
  if (!wrong.empty()) context_.oracle.Fail(fmt::format("shard {} {}", p.rank, wrong));
  recovered_();
}

void ShardLogs::AfterStep(ProcessId id, Process* shard) {
  if (!shard->log) return;
  RecordState(shard);
  ScheduleSync(id, shard);
}

void ShardLogs::RecordState(Process* p) {
  const LogSequence last = p->log->memory_log().appended();
  if (last == p->witnessed || p->shard->stopped()) return;
  p->witnessed = last;
  if (const auto hash = p->shard->DurableHash()) witnesses_[p->rank].OnState(last, *hash);
}

void ShardLogs::ScheduleSync(ProcessId id, Process* p) {
  if (p->log_busy || !p->log->memory_log().dirty()) return;
  p->log_busy = true;
  const auto some = [this] {
    return 1 + TimeUs(context_.dice.main.Below(std::uint64_t(context_.scenario.faults.sync_max_us)));
  };
  const auto with = [this, id](auto run) {
    return [this, id, run] {
      if (Process* process = context_.processes.Find(id)) run(*process);
    };
  };
  const TimeUs write = context_.now() + some();
  const TimeUs sync = write + (std::exchange(p->slow_sync, false) ? SlowSync() : some());
  context_.events.At(write, with([](Process& process) { process.log->memory_log().Write(); }));
  context_.events.At(sync, with([this, id](Process& process) {
                       process.log->memory_log().Sync(context_.dice.main.Chance(0.2));
                       process.log_busy = false;
                       context_.control.Step(id, [this](Process& shard, Outbox* out) {
                         shard.shard->OnLogSynced(context_.clocks.NowOf(shard), out);
                       });
                     }));
}

}  // namespace tarn::sim
