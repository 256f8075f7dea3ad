#include "sim/fleet/node_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tarn::sim {
namespace {

// Minimum time between two cuts of a shard by IsolateShard. Its heartbeats arrive meanwhile, so that successive cuts do
// not add up to more than a lease.
constexpr TimeUs kBetweenCutsUs = 2'000'000;

}  // namespace

void NodeFaults::Plan() {
  const Faults& f = context_.scenario.faults;
  SplitMix& dice = context_.dice.main;
  for (std::uint32_t i = 0; i < f.reconnects; ++i)
    context_.events.At(context_.Sometime(&dice), [this] { context_.network.ReconnectOne(); });
  PlanPartitions();
  PlanPauses();
  for (std::uint32_t i = 0; i < f.crashes; ++i) {
    const std::uint32_t rank = std::uint32_t(dice.Below(context_.scenario.workers));
    context_.events.At(context_.Sometime(&dice), [this, rank] { CrashWorker(rank); });
  }
  PlanSecondStarts();
  PlanRequests();
  context_.events.At(f.until_us, [this] { context_.network.Heal(); });
}

void NodeFaults::PlanSecondStarts() {
  SplitMix& dice = context_.dice.main;
  for (std::uint32_t i = 0; i < context_.scenario.faults.second_starts; ++i) {
    const std::uint32_t rank = std::uint32_t(dice.Below(context_.scenario.workers));
    context_.events.At(context_.Sometime(&dice), [this, rank] {
      if (context_.processes.down()) return;
      ++other_faults_;
      context_.processes.workers()[rank] = context_.control.StartWorker(rank);
    });
  }
}

// Plans checkpoint requests of a tool, and a clean stop.
void NodeFaults::PlanRequests() {
  const auto step = [this](auto run) {
    return [this, run] { context_.control.Step(context_.processes.scheduler_id(), run); };
  };
  for (std::uint32_t i = 0; i < context_.scenario.requests; ++i)
    context_.events.At(context_.Sometime(&context_.dice.main), step([this](Process& process, Outbox* out) {
                         process.scheduler->RequestCheckpoint(context_.clocks.NowOf(process), out);
                       }));
  const TimeUs stop_us = context_.scenario.faults.stop_us;
  if (stop_us == 0) return;
  context_.events.At(stop_us, [this, step] {
    context_.Trace("a user stops the run");
    step([this](Process& process, Outbox* out) { process.scheduler->RequestStop(context_.now(), out); })();
  });
}

void NodeFaults::PlanPartitions() {
  SplitMix& dice = context_.dice.main;
  const std::uint32_t shards = context_.scenario.shards;
  const std::uint32_t nodes = 1 + shards + context_.scenario.workers;
  for (std::uint32_t i = 0; i < context_.scenario.faults.partitions; ++i) {
    // At least half of the cuts are on the scheduler's links, which carry views and verdicts. Links between the
    // scheduler and shards, or between shards, are cut for less than the lease, because a dead shard ends the job. A
    // worker's link may be cut for longer: the worker may be declared dead while it can still reach the shards. A node
    // that is isolated from all others is cut off for less than the lease.
    const NodeId a = dice.Chance(0.5) ? 0 : NodeId(dice.Below(nodes));
    const NodeId b = NodeId(dice.Below(nodes));
    const bool both = dice.Chance(0.6), isolates = dice.Chance(0.2);
    const bool may_be_long = !isolates && (a > shards || b > shards);
    const TimeUs length = 100'000 + TimeUs(dice.Below(may_be_long && dice.Chance(0.5) ? 8'000'000 : 1'000'000));
    context_.events.At(context_.Sometime(&dice), [this, a, b, both, isolates, length, nodes] {
      if (!isolates) return context_.network.Cut(a, b, both, context_.now() + length);
      for (NodeId other = 0; other < nodes; ++other)
        if (other != a) context_.network.Cut(a, other, both, context_.now() + length);
    });
  }
}

void NodeFaults::PlanPauses() {
  const Faults& f = context_.scenario.faults;
  SplitMix& dice = context_.dice.main;
  const std::uint32_t shards = context_.scenario.shards;
  const std::uint32_t nodes = 1 + shards + context_.scenario.workers;
  for (std::uint32_t i = 0; i < f.pauses; ++i) {
    const NodeId node = NodeId(dice.Below(nodes));
    const bool worker = node > shards;
    // A worker may sleep for more than its lease; it must then be fenced.
    const TimeUs length = 50'000 + TimeUs(dice.Below(worker ? 8'000'000 : 1'000'000));
    context_.events.At(context_.Sometime(&dice), [this, node, length] { Pause(node, length); });
  }
  const TimeUs beyond_lease = context_.lease_us() + 500'000 + TimeUs(dice.Below(2'000'000));
  if (f.scheduler_sleeps)
    context_.events.At(context_.Sometime(&dice), [this, beyond_lease] { Pause(0, beyond_lease); });
  if (!f.shard_sleeps) return;
  const NodeId shard = 1 + NodeId(dice.Below(shards));
  context_.events.At(context_.Sometime(&dice), [this, shard, beyond_lease] {
    shard_slept_until_ = context_.now() + beyond_lease;
    Pause(shard, beyond_lease);
  });
}

void NodeFaults::Pause(NodeId node, TimeUs length) {
  context_.Trace(fmt::format("node {} pauses for {:.1f} s", node, double(length) * 1e-6));
  for (const auto& [id, p] : context_.processes.all()) {
    if (p->node != node || p->over) continue;
    p->paused_until = std::max(p->paused_until, context_.now() + length);
    ++other_faults_;
  }
}

void NodeFaults::CrashWorker(std::uint32_t rank, TimeUs away_us) {
  Processes& processes = context_.processes;
  if (processes.down()) return;
  const ProcessId id = processes.workers()[rank];
  const Process* worker = processes.Find(id);
  if (worker == nullptr || worker->over) return;
  ++crashes_;
  context_.Trace(fmt::format("worker {} crashes: {}", rank, worker->worker->Describe()));
  context_.oracle.cohorts().OnGone(worker->worker->client().welcome().incarnation);
  context_.network.RemoveProcess(id);
  processes.Remove(id);
  // Without `away_us`, the worker restarts within 0.5 s with probability 0.7, else possibly after it was declared dead.
  SplitMix& dice = context_.dice.main;
  const TimeUs back = away_us != 0       ? away_us
                      : dice.Chance(0.7) ? TimeUs(dice.Below(500'000))
                                         : TimeUs(dice.Below(9'000'000));
  context_.events.At(context_.now() + back, [this, rank, id] {
    ProcessId& place = context_.processes.workers()[rank];
    if (!context_.processes.down() && place == id) place = context_.control.StartWorker(rank);
  });
}

// With probability 1 / shards, the tier's disk of this shard fails permanently or returns damaged bytes at some time.
void NodeFaults::PlanTierFaults(ProcessId id) {
  const Faults& f = context_.scenario.faults;
  if (!f.fail_tier && !f.damage_tier) return;
  SplitMix& dice = context_.dice.tier;
  if (!dice.Chance(1.0 / context_.scenario.shards)) return;
  context_.events.At(context_.now() + context_.Sometime(&dice), [this, id] {
    const Process* process = context_.processes.Find(id);
    if (process == nullptr || process->over) return;
    const Faults& faults = context_.scenario.faults;
    if (faults.damage_tier && !process->cold->Damage()) return;
    if (faults.fail_tier) process->cold->FailWith({ErrorCode::kIo, "tier: No space left on device"});
    ++context_.disk.failed_tiers;
    ++other_faults_;
  });
}

void NodeFaults::PlanTimeJumps() {
  for (std::uint32_t i = 0; i < context_.scenario.faults.time_jumps; ++i)
    context_.events.At(context_.Sometime(&context_.dice.time), [this] { JumpInTime(); });
}

// Advances the clock of one shard or, with probability 1/2, of all, by seconds to hours, as after a suspend. A shard
// must not answer before it has received a message of the scheduler again (rule N5).
void NodeFaults::JumpInTime() {
  if (context_.processes.down() || context_.now() > context_.until_us()) return;
  SplitMix& dice = context_.dice.time;
  const TimeUs by = TimeUs(1e6 * std::pow(10.0, 4 * dice.Unit()));
  const bool all = dice.Chance(0.5);
  const auto one = std::uint32_t(dice.Below(context_.scenario.shards));
  context_.Trace(fmt::format("the time of {} jumps by {:.1f} s", all ? "all shards" : fmt::format("shard {}", one),
                             double(by) * 1e-6));
  ++time_jumps_;
  for (const auto& [id, p] : context_.processes.all()) {
    if (!p->shard || p->over || (!all && p->rank != one)) continue;
    p->ahead += by;
    context_.control.ArmTimer(id, *p);
  }
}

void NodeFaults::OnNewOrder() {
  if (context_.dice.time.Chance(context_.scenario.faults.jump_at_cut))
    context_.events.At(context_.now() + TimeUs(context_.dice.time.Below(40'000)), [this] { JumpInTime(); });
}

// With probability isolate_at_new_view, cuts a random shard off from the scheduler when the view changes, because a
// missed change of the view is the critical case.
void NodeFaults::IsolateShard() {
  SplitMix& dice = context_.dice.main;
  if (!dice.Chance(context_.scenario.faults.isolate_at_new_view)) return;
  const std::uint32_t shard = std::uint32_t(dice.Below(context_.scenario.shards));
  if (context_.now() < next_cut_[shard]) return;
  const bool one_way = dice.Chance(0.5);
  const TimeUs until = context_.now() + 200'000 + TimeUs(dice.Below(one_way ? 3'000'000 : 1'500'000));
  next_cut_[shard] = until + kBetweenCutsUs;
  context_.network.Cut(0, 1 + shard, !one_way, until);
}

// With probability 1/2, the report of a shard's stop is lost, so that the shard must repeat it.
void NodeFaults::OnShardStopped(const Process& shard) {
  context_.Trace(fmt::format("shard {} stops: {}", shard.rank, shard.shard->stop_reason().reason));
  if (context_.dice.tier.Chance(0.5)) context_.network.Cut(shard.node, 0, false, context_.now() + 500'000);
}

// With probability crash_at_cut per worker and checkpoint, crashes the worker after it has passed the clock of the
// checkpoint and before its part has arrived, which makes the checkpoint void (rule K1).
void NodeFaults::AfterWorkerStep(Process* p) {
  SplitMix& dice = context_.dice.main;
  const CheckpointOrder& order = p->worker->client().view().checkpoint;
  if (order.at_clock && order.id > p->order && context_.now() < context_.until_us()) {
    p->order = order.id;
    if (!p->crash_at && dice.Chance(context_.scenario.faults.crash_at_cut)) {
      p->crash_at = order.clock + 2;
      context_.network.Cut(p->node, 0, false, context_.now() + 2'000'000);
    }
  }
  if (!p->crash_at || p->worker->client().clock() < *p->crash_at) return;
  p->crash_at.reset();
  context_.events.At(context_.now() + TimeUs(dice.Below(20'000)), [this, rank = p->rank] { CrashWorker(rank); });
}

void NodeFaults::AddTo(RunResult* result) const {
  result->crashes = crashes_;
  result->time_jumps = time_jumps_;
  result->faults_fired += crashes_ + time_jumps_ + other_faults_;
}

}  // namespace tarn::sim
