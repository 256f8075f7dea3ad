// Logs of a simulated fleet, what ends everything at once: all processes, or the power with what was not synced, and
// what goes wrong as they come back.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "server/exhaustion.h"
#include "sim/fleet_process.h"

namespace tarn::sim {
namespace {

constexpr TimeUs kDownUs = 500'000;
// Of outages: each machine by itself loses its power, or not.
constexpr double kApart = 0.3;
// Of outages of workers in step that wait: when one of them has done a lease and is ahead.
constexpr double kTakesBack = 0.6;
// An outage that waits for a moment comes this long after it at most, and without it after so long.
constexpr TimeUs kAfterMomentUs = 3'000, kAwaitUs = 1'000'000;
// Another outage comes this long after everything was started again.
constexpr TimeUs kAgainUs = 300'000;

}  // namespace

void Fleet::PlanOutages() {
  const Faults& f = scenario_.faults;
  for (std::uint32_t i = 0; i < f.outages; ++i)
    events_.At(50'000 + TimeUs(outage_rng_.Below(std::uint64_t(f.until_us))), [this] { AwaitOutage(); });
}

// The disk of some shard will not answer for longer than a lease.
void Fleet::PlanSlowSyncs() {
  SplitMix rng(Mix64(scenario_.draw ^ 0x64697364));
  for (std::uint32_t i = 0; i < scenario_.faults.slow_syncs; ++i)
    events_.At(50'000 + TimeUs(rng.Below(std::uint64_t(scenario_.faults.until_us))),
               [this, which = rng.Below(scenario_.shards)] {
                 const auto shard = processes_.find(shard_ids_[which]);
                 if (shard == processes_.end()) return;
                 shard->second->slow_sync = true;
                 ++other_faults_;
               });
}

TimeUs Fleet::SlowSync() {
  const auto lease = TimeUs(scenario_.job.fleet.lease_seconds * 1e6);
  return lease + TimeUs(time_rng_.Below(2 * std::uint64_t(lease)));
}

// An outage is due: now, or when something has just happened that must not be forgotten.
void Fleet::AwaitOutage() {
  if (!outage_rng_.Chance(scenario_.faults.outage_awaits)) return Outage();
  constexpr Moment kMoments[] = {Moment::kPushAcked, Moment::kTickAcked, Moment::kLeaseDone, Moment::kPartWritten,
                                 Moment::kWhole,     Moment::kWhole,     Moment::kRecovered};
  awaited_ = kMoments[outage_rng_.Below(std::size(kMoments))];
  // Whoever is ahead then is taken back (rule G4).
  if (scenario_.KeepsStep() && outage_rng_.Chance(kTakesBack)) awaited_ = Moment::kLeaseDone;
  events_.At(events_.now() + kAwaitUs, [this] {
    if (std::exchange(awaited_, std::nullopt)) Outage();
  });
}

void Fleet::OnMoment(Moment moment) {
  if (awaited_ != moment) return;
  awaited_.reset();
  const TimeUs after = outage_rng_.Chance(0.5) ? 0 : TimeUs(outage_rng_.Below(kAfterMomentUs));
  events_.At(events_.now() + after, [this] { Outage(); });
}

void Fleet::OnWorkerTold(const Process& worker, const Message& message) {
  if (message.sender.role != Role::kShard) return;
  LogWitness& witness = witnesses_[message.sender.rank];
  const Incarnation incarnation = worker.worker->client().welcome().incarnation;
  if (const auto* ack = std::get_if<PushAck>(&message.body)) {
    for (const SectionAck& section : ack->sections)
      if (section.code == ErrorCode::kOk) witness.OnPushAcked(incarnation, section.partition, section.sequence);
    OnMoment(Moment::kPushAcked);
  } else if (const auto* tick = std::get_if<TickAck>(&message.body)) {
    const Clock before = std::max(witness.Ticked(incarnation), worker.worker->client().welcome().start_clock);
    witness.OnTickAcked(incarnation, tick->clock);
    OnMoment(Moment::kTickAcked);
    if (tick->clock > before + 1) OnJump(incarnation);
  }
}

// A worker has left out a clock at which it may be taken back: what it had done by then only its next tick tells (G4).
void Fleet::OnJump(Incarnation worker) {
  if (jumps_awaited_ == 0 || !IsAhead(worker)) return;
  --jumps_awaited_;
  // The others go on for a clock or two.
  events_.At(events_.now() + TimeUs(outage_rng_.Below(2 * std::uint64_t(scenario_.compute_max_us))),
             [this] { EndEverything(); });
}

// Whether a worker has ticked beyond what others have: what it has done by then it may have to do again.
bool Fleet::IsAhead(Incarnation incarnation) const {
  bool ahead = false;
  for (const auto& [id, p] : processes_) {
    if (!p->shard || p->over) continue;
    const auto witness = witnesses_.find(p->rank);
    const Clock ticked = witness == witnesses_.end() ? Clock() : witness->second.Ticked(incarnation);
    ahead = ticked > p->shard->minimum_clock();
    if (!ahead) return false;
  }
  return ahead;
}

void Fleet::OnSchedulerTold(const Message& message) {
  const auto* lease = std::get_if<LeaseRequest>(&message.body);
  if (lease != nullptr && !lease->done.empty() && IsAhead(message.sender.incarnation)) OnMoment(Moment::kLeaseDone);
  if (std::holds_alternative<CheckpointPart>(message.body)) OnMoment(Moment::kPartWritten);
  const auto* beat = std::get_if<Heartbeat>(&message.body);
  if (beat == nullptr || message.sender.role != Role::kShard) return;
  for (const FencedTick& fenced : beat->fenced)
    if (const auto wrong = witnesses_[message.sender.rank].CheckTick(fenced.incarnation, fenced.tick); !wrong.empty())
      oracle_.Fail(fmt::format("shard {} {}", message.sender.rank, wrong));
}

std::unique_ptr<SimLog> Fleet::MakeLog(ProcessId id, std::uint32_t index) {
  logs_[index].FailSyncs([this, index] {
    if (failing_logs_.erase(index) == 0) return false;
    Trace(fmt::format("a sync of the log of shard {} fails", index));
    ++deaths_;
    return sync_failed_ = true;
  });
  return std::make_unique<SimLog>(&logs_[index], fmt::format("shard-{}", index),
                                  [this, id](LogSequence last) { OnRecovered(id, last); });
}

void Fleet::OnRecovered(ProcessId id, LogSequence last) {
  Process& p = *processes_.at(id);
  LogWitness& witness = witnesses_[p.rank];
  std::string wrong = witness.CheckWatermarks(restored_.workers, [&p](Incarnation worker, PartitionId partition) {
    return p.checker->Last(worker, partition);
  });
  if (wrong.empty()) wrong = witness.CheckState(last, p.shard->DurableHash(), &recoveries_);
  if (!wrong.empty()) oracle_.Fail(fmt::format("shard {} {}", p.rank, wrong));
  OnMoment(Moment::kRecovered);
}

// What the state is behind the record that is the last now.
void Fleet::Witness(Process& p) {
  const LogSequence last = p.log->files().appended();
  if (scenario_.faults.outages == 0 || last == p.witnessed || p.shard->stopped()) return;
  p.witnessed = last;
  (void)server::CatchExhaustion([&] { witnesses_[p.rank].OnState(last, p.shard->DurableHash()); });
}

// What a shard has appended is written after a while, and durable after another; acknowledgements leave then.
void Fleet::TendLog(ProcessId id, Process& p) {
  if (p.log_busy || !p.log->files().dirty()) return;
  p.log_busy = true;
  const auto some = [this] { return 1 + TimeUs(rng_.Below(std::uint64_t(scenario_.faults.sync_max_us))); };
  const auto with = [this, id](auto run) {
    return [this, id, run] {
      if (const auto it = processes_.find(id); it != processes_.end()) run(*it->second);
    };
  };
  const TimeUs write = events_.now() + some(), sync = write + (std::exchange(p.slow_sync, false) ? SlowSync() : some());
  events_.At(write, with([](Process& process) { process.log->files().Write(); }));
  events_.At(sync, with([this, id](Process& process) {
               process.log->files().Sync(rng_.Chance(0.2));
               process.log_busy = false;
               Step(id, [this](Process& shard, Outbox* out) { shard.shard->OnLogSynced(NowOf(shard), out); });
             }));
}

void Fleet::Outage() {
  if (events_.now() <= scenario_.faults.until_us) EndEverything();
}

void Fleet::EndEverything() {
  if (down_ || Scheduler() == nullptr || Scheduler()->stopping()) return;
  ++outages_;
  EndAll();
}

void Fleet::EndAll() {
  down_ = true;
  for (auto& [id, p] : processes_) {
    if (p->worker) oracle_.OnWorkerGone(p->worker->client().welcome().incarnation);
    if (p->shard) unix_us_at_zero_[p->rank] += p->ahead;
    network_.RemoveProcess(id);
  }
  processes_.clear();
  disk_->writing.clear();
  EndDisks();
  said_.clear();
  heard_.clear();
  shard_slept_until_ = 0;
  server_deaths_ = 0;
  sync_failed_ = false;
  failing_logs_.clear();
  events_.At(events_.now() + TimeUs(outage_rng_.Below(kDownUs)), [this] { ComeBack(); });
}

// All machines are killed or lose their power, or some do the one and some the other.
void Fleet::EndDisks() {
  const bool power = outage_rng_.Chance(scenario_.faults.power), apart = outage_rng_.Chance(kApart);
  bool any = false;
  for (auto& [shard, disk] : logs_) {
    const bool dark = apart ? outage_rng_.Chance(scenario_.faults.power) : power;
    const auto dice = [this](std::uint64_t below) { return outage_rng_.Below(below); };
    if (dark) {
      disk.LosePower(dice);
      LoseUnsynced(disk_, ShardId(shard), dice);
    } else {
      disk.EndProcess();
    }
    Trace(fmt::format("shard {} {}", shard, dark ? "loses its power" : "is killed"));
    any |= dark;
  }
  scheduler_store_.EndProcess();
  if (apart ? outage_rng_.Chance(scenario_.faults.power) : power) scheduler_store_.LosePower();
  power_cuts_ += any ? 1 : 0;
  if (const auto missing = MissingOf(*disk_); !missing.empty()) oracle_.Fail(missing);
}

// Clocks are not what they were: a machine was off for long, or is set by another one.
void Fleet::SetClocks() {
  if (scenario_.life.expire_seconds == 0) return;
  for (auto& [shard, unix_us] : unix_us_at_zero_) {
    if (time_rng_.Chance(0.3)) unix_us += TimeUs(1e6 * std::pow(10.0, 4 * time_rng_.Unit()));
    if (time_rng_.Chance(0.2)) unix_us -= TimeUs(time_rng_.Below(100'000'000));
  }
}

// A shard has much to read. A worker that waits goes meanwhile, and is forgotten: the others wait for it (rule G3).
void Fleet::RecoverSlowly() {
  const auto lease = TimeUs(scenario_.job.fleet.lease_seconds * 1e6);
  const auto some = [&](TimeUs most) { return TimeUs(outage_rng_.Below(std::uint64_t(most))); };
  processes_.at(shard_ids_[outage_rng_.Below(scenario_.shards)])->recovers_us = lease + lease / 2 + some(lease);
  const auto rank = std::uint32_t(outage_rng_.Below(scenario_.workers));
  const TimeUs away = 2 * lease + some(lease);
  events_.At(events_.now() + 500'000 + some(1'000'000), [this, rank, away] { CrashWorker(rank, away); });
}

void Fleet::ComeBack() {
  if (!down_) return;
  down_ = false;
  Trace("everything is started again");
  SetClocks();
  StartAll();
  if (scenario_.faults.slow_recovery > 0 && outage_rng_.Chance(scenario_.faults.slow_recovery)) RecoverSlowly();
  if (outage_rng_.Chance(scenario_.faults.outage_again))
    events_.At(events_.now() + TimeUs(outage_rng_.Below(kAgainUs)), [this] { Outage(); });
}

}  // namespace tarn::sim
