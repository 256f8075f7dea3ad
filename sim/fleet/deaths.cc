#include "sim/fleet/deaths.h"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::sim {
namespace {

// Probability that a server is restarted. It then has another nonce, and its shards are rejected (rule N1).
constexpr double kServerComesBack = 0.5;
constexpr TimeUs kServerRestartDelayMaxUs = 3'000'000;

}  // namespace

void Deaths::Plan() {
  const Faults& f = context_.scenario.faults;
  SplitMix& dice = context_.dice.death;
  for (std::uint32_t i = 0; i < f.server_deaths; ++i)
    context_.events.At(context_.Sometime(&dice), [this] { EndServer(); });
  if (f.scheduler_dies) context_.events.At(context_.Sometime(&dice), [this] { EndScheduler(); });
  for (std::uint32_t i = 0; i < f.failed_syncs; ++i)
    context_.events.At(context_.Sometime(&dice), [this] {
      if (!context_.processes.down())
        logs_->FailNextSync(std::uint32_t(context_.dice.death.Below(context_.scenario.shards)));
    });
}

bool Deaths::StillRuns(ProcessId scheduler) const {
  return !over_ && context_.processes.scheduler_id() == scheduler && context_.processes.Runs();
}

void Deaths::EndServer() {
  if (over_ || !context_.processes.Runs() || server_died_) return;
  // Ends no server before all shards have joined: until the fleet is complete, a new process may replace a dead server
  // (rule N1), and the job would not end.
  const auto joined = [this](ProcessId id) {
    const Process* process = context_.processes.Find(id);
    return process != nullptr && process->shard->joined();
  };
  if (!std::ranges::all_of(context_.processes.shards(), joined)) return;
  SplitMix& dice = context_.dice.death;
  const auto server = std::uint32_t(dice.Below(context_.scenario.job.fleet.servers));
  const bool power = dice.Chance(context_.scenario.faults.power_loss);
  context_.Trace(fmt::format("server {} {}", server, power ? "loses its power" : "is killed"));
  ++deaths_;
  server_died_ = true;
  died_early_ = context_.processes.scheduler()->progress().phase != "finishing";
  const std::uint32_t each = context_.scenario.job.fleet.shards;
  for (std::uint32_t shard = server * each; shard < (server + 1) * each; ++shard) EndShard(shard, power);
  if (const auto missing = MissingOf(context_.disk); !missing.empty()) context_.oracle.Fail(missing);
  CheckServerIsMissed(server);
  if (dice.Chance(kServerComesBack)) StartServerAgain(server);
}

void Deaths::EndShard(std::uint32_t shard, bool power) {
  const ProcessId id = context_.processes.shards()[shard];
  const Process* process = context_.processes.Find(id);
  if (process == nullptr) return;
  context_.clocks.OnEnd(*process);
  context_.network.RemoveProcess(id);
  context_.processes.Remove(id);
  server::MemoryDisk& disk = logs_->disks()[shard];
  if (!power) return disk.EndProcess();
  const auto draw = [this](std::uint64_t below) { return context_.dice.death.Below(below); };
  disk.LosePower(draw);
  LoseUnsynced(&context_.disk, ShardId(shard), draw);
}

void Deaths::StartServerAgain(std::uint32_t server) {
  const TimeUs back = context_.now() + TimeUs(context_.dice.death.Below(kServerRestartDelayMaxUs));
  context_.events.At(back, [this, server, run = context_.processes.scheduler_id()] {
    if (over_ || context_.processes.down() || context_.processes.scheduler_id() != run) return;
    if (context_.processes.scheduler() == nullptr) return;
    const std::uint32_t each = context_.scenario.job.fleet.shards;
    for (std::uint32_t shard = server * each; shard < (server + 1) * each; ++shard)
      context_.processes.shards()[shard] = context_.control.StartShard(shard);
  });
}

// After 4 leases and 5 s, reports a failure if the same scheduler process still runs and is not stopping: a dead shard
// ends the job (rule N4), in every phase.
void Deaths::CheckServerIsMissed(std::uint32_t server) {
  const TimeUs limit = 4 * context_.lease_us() + 5'000'000;
  context_.events.At(context_.now() + limit, [this, server, run = context_.processes.scheduler_id()] {
    if (StillRuns(run)) context_.oracle.Fail(fmt::format("server {} died long ago, but the job continues", server));
  });
}

// Shards and clients pause themselves after one lease (N5). After two, the loops of the programs end them (N7). Here
// there are no loops: after 2.5 leases all processes end and are later restarted (durability `log`), else the run is
// over.
void Deaths::EndScheduler() {
  if (over_ || !context_.processes.Runs()) return;
  context_.Trace("the scheduler is killed");
  ++deaths_;
  workers_died_ = context_.processes.scheduler()->progress().workers_died;
  const ProcessId run = context_.processes.scheduler_id();
  context_.network.RemoveProcess(run);
  context_.processes.Remove(run);
  const TimeUs lease = context_.lease_us();
  context_.events.At(context_.now() + 2 * lease + lease / 2, [this, run] {
    if (context_.processes.down() || context_.processes.scheduler_id() != run) return;
    if (context_.scenario.job.storage.durability == Durability::kLog)
      outages_->EndAll();
    else
      over_ = true;
  });
}

void Deaths::AddTo(RunResult* result) const {
  result->deaths += deaths_;
  result->workers_died = workers_died_;
  result->faults_fired += deaths_;
}

bool Deaths::ContinuesInPlace(bool excused) {
  const Shutdown& reason = context_.processes.scheduler()->stop_reason();
  if (context_.scenario.job.storage.durability != Durability::kLog || reason.code == ErrorCode::kOk) return false;
  if (!server_died_ && !logs_->sync_failed()) return false;
  if (!excused || context_.disk.failed_writes + context_.disk.failed_tiers != 0) return false;
  context_.Trace("the job ended and continues in its folder: " + reason.reason);
  outages_->EndAll();
  return true;
}

}  // namespace tarn::sim
