#include "sim/fleet/outages.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace tarn::sim {
namespace {

// Maximum time between the end of all processes and their restart.
constexpr TimeUs kDownUs = 500'000;
// Probability that in an outage each machine loses its power independently.
constexpr double kApart = 0.3;
// Probability that an outage that waits for an event waits for kLeaseDone, in runs in which workers have equal clocks.
constexpr double kWorkerAhead = 0.6;
// Maximum delay of an outage after its event, and without the event.
constexpr TimeUs kAfterMomentUs = 3'000, kAwaitUs = 1'000'000;
// Maximum time between a restart and another outage.
constexpr TimeUs kAgainUs = 300'000;

}  // namespace

Outages::Outages(FleetContext& context, ShardLogs* logs, NodeFaults* faults, SimSchedulerStore* store)
    : context_(context),
      logs_(logs),
      faults_(faults),
      store_(store),
      jumps_awaited_(context.scenario.faults.outages_at_jumps) {}

void Outages::Plan() {
  for (std::uint32_t i = 0; i < context_.scenario.faults.outages; ++i)
    context_.events.At(50'000 + TimeUs(context_.dice.outage.Below(std::uint64_t(context_.until_us()))),
                       [this] { OnDue(); });
}

// Triggers an outage now, or at an event whose effect must not be lost.
void Outages::OnDue() {
  SplitMix& dice = context_.dice.outage;
  if (!dice.Chance(context_.scenario.faults.outage_awaits)) return Trigger();
  constexpr Moment kMoments[] = {Moment::kPushAcked, Moment::kTickAcked, Moment::kLeaseDone, Moment::kPartWritten,
                                 Moment::kWhole,     Moment::kWhole,     Moment::kRecovered};
  awaited_ = kMoments[dice.Below(std::size(kMoments))];
  // A worker that is ahead is then set back (rule G4).
  if (context_.scenario.HasFixedBits() && dice.Chance(kWorkerAhead)) awaited_ = Moment::kLeaseDone;
  context_.events.At(context_.now() + kAwaitUs, [this] {
    if (std::exchange(awaited_, std::nullopt)) Trigger();
  });
}

void Outages::OnMoment(Moment moment) {
  if (awaited_ != moment) return;
  awaited_.reset();
  SplitMix& dice = context_.dice.outage;
  const TimeUs after = dice.Chance(0.5) ? 0 : TimeUs(dice.Below(kAfterMomentUs));
  context_.events.At(context_.now() + after, [this] { Trigger(); });
}

void Outages::OnWorkerReceived(const Process& worker, const Message& message) {
  if (message.sender.role != Role::kShard) return;
  LogWitness& witness = logs_->witness(message.sender.rank);
  const Welcome& welcome = worker.worker->client().welcome();
  const Incarnation incarnation = welcome.incarnation;
  if (const auto* ack = std::get_if<PushAck>(&message.body)) {
    for (const SectionAck& section : ack->sections)
      if (section.code == ErrorCode::kOk) witness.OnPushAcked(incarnation, section.partition, section.sequence);
    OnMoment(Moment::kPushAcked);
  } else if (const auto* tick = std::get_if<TickAck>(&message.body)) {
    const Clock before = std::max(witness.Ticked(incarnation), welcome.start_clock);
    witness.OnTickAcked(incarnation, tick->clock);
    OnMoment(Moment::kTickAcked);
    if (tick->clock > before + 1) OnJump(incarnation);
  }
}

// A worker has skipped a clock to which a restart may set it back. Only its next tick determines what it had done by
// then (G4).
void Outages::OnJump(Incarnation worker) {
  if (jumps_awaited_ == 0 || !IsAhead(worker)) return;
  --jumps_awaited_;
  // The other workers continue for a clock or two.
  const auto most = 2 * std::uint64_t(context_.scenario.compute_max_us);
  context_.events.At(context_.now() + TimeUs(context_.dice.outage.Below(most)), [this] { EndEverything(); });
}

// Whether a worker has ticked beyond the others, and may have to repeat work after a restart.
bool Outages::IsAhead(Incarnation worker) const {
  bool ahead = false;
  for (const auto& [id, p] : context_.processes.all()) {
    if (!p->shard || p->over) continue;
    ahead = logs_->Ticked(p->rank, worker) > p->shard->minimum_clock();
    if (!ahead) return false;
  }
  return ahead;
}

void Outages::OnSchedulerReceived(const Message& message) {
  const auto* lease = std::get_if<LeaseRequest>(&message.body);
  if (lease != nullptr && !lease->done.empty() && IsAhead(message.sender.incarnation)) OnMoment(Moment::kLeaseDone);
  if (std::holds_alternative<CheckpointPart>(message.body)) OnMoment(Moment::kPartWritten);
  const auto* beat = std::get_if<Heartbeat>(&message.body);
  if (beat == nullptr || message.sender.role != Role::kShard) return;
  const LogWitness& witness = logs_->witness(message.sender.rank);
  for (const FencedTick& fenced : beat->fenced)
    if (const auto wrong = witness.CheckTick(fenced.incarnation, fenced.tick); !wrong.empty())
      context_.oracle.Fail(fmt::format("shard {} {}", message.sender.rank, wrong));
}

void Outages::Trigger() {
  if (context_.now() <= context_.until_us()) EndEverything();
}

void Outages::EndEverything() {
  if (!context_.processes.Runs()) return;
  ++outages_;
  EndAll();
}

void Outages::EndAll() {
  for (const auto& [id, p] : context_.processes.all()) {
    if (p->worker) context_.oracle.cohorts().OnGone(p->worker->client().welcome().incarnation);
    if (p->shard) context_.clocks.OnEnd(*p);
    context_.network.RemoveProcess(id);
  }
  context_.processes.EndAll();
  context_.disk.writing.clear();
  EndDisks();
  context_.control.OnAllEnded();
  context_.events.At(context_.now() + TimeUs(context_.dice.outage.Below(kDownUs)), [this] { ComeBack(); });
}

// Kills the processes of all machines, or cuts the power of all, or does one of both to each machine at random.
void Outages::EndDisks() {
  SplitMix& dice = context_.dice.outage;
  const double power_chance = context_.scenario.faults.power_loss;
  const bool power = dice.Chance(power_chance), apart = dice.Chance(kApart);
  bool any = false;
  for (auto& [shard, disk] : logs_->disks()) {
    const bool power_lost = apart ? dice.Chance(power_chance) : power;
    const auto draw = [&dice](std::uint64_t below) { return dice.Below(below); };
    if (power_lost) {
      disk.LosePower(draw);
      LoseUnsynced(&context_.disk, ShardId(shard), draw);
    } else {
      disk.EndProcess();
    }
    context_.Trace(fmt::format("shard {} {}", shard, power_lost ? "loses its power" : "is killed"));
    any |= power_lost;
  }
  store_->EndProcess();
  if (apart ? dice.Chance(power_chance) : power) store_->LosePower();
  power_cuts_ += any ? 1 : 0;
  if (const auto missing = MissingOf(context_.disk); !missing.empty()) context_.oracle.Fail(missing);
}

// A shard reads its log slowly. Meanwhile a waiting worker dies and is removed, so the others wait for a new one (rule
// G3).
void Outages::RecoverSlowly() {
  SplitMix& dice = context_.dice.outage;
  const TimeUs lease = context_.lease_us();
  const auto some = [&dice](TimeUs most) { return TimeUs(dice.Below(std::uint64_t(most))); };
  const TimeUs length = lease + lease / 2 + some(lease);
  const auto shard = std::uint32_t(dice.Below(context_.scenario.shards));
  context_.processes.Find(context_.processes.shards()[shard])->recovers_us = length;
  const auto rank = std::uint32_t(dice.Below(context_.scenario.workers));
  const TimeUs away = 2 * lease + some(lease);
  context_.events.At(context_.now() + 500'000 + some(1'000'000),
                     [this, rank, away] { faults_->CrashWorker(rank, away); });
}

void Outages::AddTo(RunResult* result) const {
  result->outages = outages_;
  result->power_cuts = power_cuts_;
  result->faults_fired += outages_;
}

void Outages::ComeBack() {
  if (!context_.processes.down()) return;
  SplitMix& dice = context_.dice.outage;
  const Faults& f = context_.scenario.faults;
  context_.processes.Start();
  context_.Trace("all processes restart");
  context_.clocks.Disturb(&context_.dice.time);
  context_.control.StartAll();
  if (f.slow_recovery > 0 && dice.Chance(f.slow_recovery)) RecoverSlowly();
  if (dice.Chance(f.outage_again))
    context_.events.At(context_.now() + TimeUs(dice.Below(kAgainUs)), [this] { Trigger(); });
}

}  // namespace tarn::sim
