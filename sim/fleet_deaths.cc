// What ends alone in a simulated fleet: a server, the scheduler, a log whose sync fails. The job ends with a reason;
// with a log it then goes on in its folder, and nothing acknowledged is lost. And clocks of which each runs at its own
// rate.
#include <fmt/format.h>

#include <algorithm>

#include "sim/fleet_process.h"

namespace tarn::sim {
namespace {

// A server that somebody starts again has another nonce, and its shards are refused (rule N1).
constexpr double kServerComesBack = 0.5;
constexpr TimeUs kServerBackUs = 3'000'000;

}  // namespace

void Fleet::PlanDeaths() {
  const Faults& f = scenario_.faults;
  const auto sometime = [&] { return 100'000 + TimeUs(death_rng_.Below(std::uint64_t(f.until_us))); };
  for (std::uint32_t i = 0; i < f.server_deaths; ++i) events_.At(sometime(), [this] { EndServer(); });
  if (f.scheduler_dies) events_.At(sometime(), [this] { EndScheduler(); });
  for (std::uint32_t i = 0; i < f.failed_syncs; ++i)
    events_.At(sometime(), [this] {
      if (!down_) failing_logs_.insert(std::uint32_t(death_rng_.Below(scenario_.shards)));
    });
}

void Fleet::EndServer() {
  if (down_ || over_ || Scheduler() == nullptr || Scheduler()->stopping() || server_deaths_ != 0) return;
  // Before the fleet is complete another may take its place (rule N1).
  const auto joined = [this](ProcessId id) {
    const auto it = processes_.find(id);
    return it != processes_.end() && it->second->shard->joined();
  };
  if (!std::ranges::all_of(shard_ids_, joined)) return;
  const auto server = std::uint32_t(death_rng_.Below(scenario_.job.fleet.servers));
  const bool power = death_rng_.Chance(scenario_.faults.power);
  Trace(fmt::format("server {} {}", server, power ? "loses its power" : "is killed"));
  ++deaths_;
  ++server_deaths_;
  died_early_ = Scheduler()->progress().phase != "finishing";
  const std::uint32_t each = scenario_.job.fleet.shards;
  for (std::uint32_t shard = server * each; shard < (server + 1) * each; ++shard) {
    const auto it = processes_.find(shard_ids_[shard]);
    if (it == processes_.end()) continue;
    unix_us_at_zero_[shard] += it->second->ahead;
    network_.RemoveProcess(it->first);
    processes_.erase(it);
    if (!power) {
      logs_[shard].EndProcess();
      continue;
    }
    const auto dice = [this](std::uint64_t below) { return death_rng_.Below(below); };
    logs_[shard].LosePower(dice);
    LoseUnsynced(disk_, ShardId(shard), dice);
  }
  if (const auto missing = MissingOf(*disk_); !missing.empty()) oracle_.Fail(missing);
  CheckServerIsMissed(server, events_.now());
  if (!death_rng_.Chance(kServerComesBack)) return;
  events_.At(events_.now() + TimeUs(death_rng_.Below(kServerBackUs)), [this, server, each, run = scheduler_id_] {
    if (down_ || over_ || scheduler_id_ != run || Scheduler() == nullptr) return;
    for (std::uint32_t shard = server * each; shard < (server + 1) * each; ++shard)
      shard_ids_[shard] = StartShard(shard);
  });
}

// The job ends (rule N4), however its scheduler is doing.
void Fleet::CheckServerIsMissed(std::uint32_t server, TimeUs died) {
  const auto lease = TimeUs(scenario_.job.fleet.lease_seconds * 1e6);
  const TimeUs patience = 4 * lease + 5'000'000;
  events_.At(died + patience, [this, server, run = scheduler_id_] {
    if (down_ || over_ || scheduler_id_ != run || Scheduler() == nullptr || Scheduler()->stopping()) return;
    oracle_.Fail(fmt::format("server {} died long ago, and the job goes on", server));
  });
}

// Its nodes pause after a lease (N5) and end after two (N7): that is the loops' to do, and done here.
void Fleet::EndScheduler() {
  if (down_ || over_ || Scheduler() == nullptr || Scheduler()->stopping()) return;
  Trace("the scheduler is killed");
  ++deaths_;
  workers_died_ = Scheduler()->progress().workers_died;
  const ProcessId run = scheduler_id_;
  network_.RemoveProcess(run);
  processes_.erase(run);
  const auto lease = TimeUs(scenario_.job.fleet.lease_seconds * 1e6);
  events_.At(events_.now() + 2 * lease + lease / 2, [this, run] {
    if (down_ || scheduler_id_ != run) return;
    if (scenario_.job.storage.durability != Durability::kLog) {
      over_ = true;
      return;
    }
    EndAll();
  });
}

// Whether a job that ended for one of these reasons is taken up where it was: its logs have all that was acknowledged.
bool Fleet::GoesOnInPlace() {
  const Shutdown& reason = Scheduler()->stop_reason();
  if (scenario_.job.storage.durability != Durability::kLog || reason.code == ErrorCode::kOk) return false;
  if (server_deaths_ == 0 && !sync_failed_) return false;
  if (!Excused(reason) || disk_->failed != 0) return false;
  Trace("the job ended, and goes on in its folder: " + reason.reason);
  ++restarts_;
  EndAll();
  return true;
}

// Between -1 and 1 of the drift; a machine keeps its rate.
double Fleet::RateOf(NodeId node) const {
  if (scenario_.faults.clock_drift == 0) return 1;
  return 1 + scenario_.faults.clock_drift * (2 * SplitMix(Mix64(scenario_.draw ^ (0x6472 + node))).Unit() - 1);
}

TimeUs Fleet::NowOf(const Process& process) const {
  return TimeUs(double(events_.now()) * RateOf(process.node)) + process.ahead;
}

// When a process' clock shows that time.
TimeUs Fleet::ToFleetTime(const Process& process, TimeUs at) const {
  const double rate = RateOf(process.node);
  if (rate == 1 || at > TimeUs(1e15)) return at - process.ahead;
  TimeUs when = TimeUs(double(at - process.ahead) / rate);
  while (TimeUs(double(when) * rate) + process.ahead < at) ++when;
  return when;
}

// Rule N5: a shard that has not heard its scheduler for a lease answers nobody.
void Fleet::CheckPaused(const Process& p, const Message& message, const Outbox& out, Peer from) {
  if (message.sender.role != Role::kWorker || !p.shard->joined()) return;
  if (NowOf(p) - p.shard->scheduler_heard() <= p.shard->lease_us()) return;
  const auto answers = [&](const Outgoing& o) {
    const Body& body = o.message.body;
    return o.to == from && (std::holds_alternative<PushAck>(body) || std::holds_alternative<PullReply>(body) ||
                            std::holds_alternative<TickAck>(body));
  };
  if (std::ranges::any_of(out, answers))
    oracle_.Fail(fmt::format("shard {} answered though it had not heard the scheduler for a lease", p.rank));
}

}  // namespace tarn::sim
