// What goes wrong in a simulated fleet, and when.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/fleet_process.h"

namespace tarn::sim {
namespace {

constexpr TimeUs kLongPauseUs = 100'000;  // between two slices of a cut

// Between two cuts of a shard from the scheduler it is heard, so that no cut but a planned one outlasts the lease.
constexpr TimeUs kBetweenCutsUs = 2'000'000;

}  // namespace

void Fleet::PlanFaults() {
  const Faults& f = scenario_.faults;
  const auto sometime = [&] { return 100'000 + TimeUs(rng_.Below(std::uint64_t(f.until_us))); };
  for (std::uint32_t i = 0; i < f.reconnects; ++i) events_.At(sometime(), [this] { network_.ReconnectOne(); });
  PlanPartitions();
  PlanPauses();
  for (std::uint32_t i = 0; i < f.crashes; ++i) {
    const std::uint32_t rank = std::uint32_t(rng_.Below(scenario_.workers));
    events_.At(sometime(), [this, rank] { CrashWorker(rank); });
  }
  for (std::uint32_t i = 0; i < f.doubles; ++i) {
    const std::uint32_t rank = std::uint32_t(rng_.Below(scenario_.workers));
    events_.At(sometime(), [this, rank] {
      if (down_) return;
      ++other_faults_;
      worker_of_rank_[rank] = StartWorker(rank);
    });
  }
  for (std::uint32_t i = 0; i < scenario_.requests; ++i)
    events_.At(sometime(), [this] {
      Step(scheduler_id_,
           [this](Process& process, Outbox* out) { process.scheduler->RequestCheckpoint(NowOf(process), out); });
    });
  if (f.stop_us != 0)
    events_.At(f.stop_us, [this] {
      Trace("somebody stops the run");
      Step(scheduler_id_,
           [this](Process& process, Outbox* out) { process.scheduler->RequestStop(events_.now(), out); });
    });
  events_.At(f.until_us, [this] { network_.Heal(); });
}

void Fleet::PlanPartitions() {
  const Faults& f = scenario_.faults;
  const auto sometime = [&] { return 100'000 + TimeUs(rng_.Below(std::uint64_t(f.until_us))); };
  const std::uint32_t nodes = 1 + scenario_.shards + scenario_.workers;
  for (std::uint32_t i = 0; i < f.partitions; ++i) {
    // Half of the cuts are on the scheduler's links, where views and verdicts travel. Links of shards stay cut for less
    // than the lease: a dead shard ends the job. A worker may be given up while it goes on talking to the shards.
    const NodeId a = rng_.Chance(0.5) ? 0 : NodeId(rng_.Below(nodes));
    const NodeId b = NodeId(rng_.Below(nodes));
    const bool both = rng_.Chance(0.6), ring = rng_.Chance(0.2);
    const bool may_be_long = !ring && (a > scenario_.shards || b > scenario_.shards);
    const TimeUs length = 100'000 + TimeUs(rng_.Below(may_be_long && rng_.Chance(0.5) ? 8'000'000 : 1'000'000));
    events_.At(sometime(), [this, a, b, both, ring, length, nodes] {
      if (!ring) return network_.Cut(a, b, both, events_.now() + length);
      for (NodeId other = 0; other < nodes; ++other)
        if (other != a) network_.Cut(a, other, both, events_.now() + length);
    });
  }
}

void Fleet::PlanPauses() {
  const Faults& f = scenario_.faults;
  const auto sometime = [&] { return 100'000 + TimeUs(rng_.Below(std::uint64_t(f.until_us))); };
  const std::uint32_t nodes = 1 + scenario_.shards + scenario_.workers;
  for (std::uint32_t i = 0; i < f.pauses; ++i) {
    const NodeId node = NodeId(rng_.Below(nodes));
    const bool worker = node > scenario_.shards;
    // A worker may sleep past its lease; it must find itself fenced when it wakes.
    const TimeUs length = 50'000 + TimeUs(rng_.Below(worker ? 8'000'000 : 1'000'000));
    events_.At(sometime(), [this, node, length] { Pause(node, length); });
  }
  const TimeUs beyond_lease = TimeUs(scenario_.job.fleet.lease_seconds * 1e6) + 500'000 + TimeUs(rng_.Below(2'000'000));
  if (f.scheduler_sleeps) events_.At(sometime(), [this, beyond_lease] { Pause(0, beyond_lease); });
  if (!f.shard_sleeps) return;
  const NodeId shard = 1 + NodeId(rng_.Below(scenario_.shards));
  events_.At(sometime(), [this, shard, beyond_lease] {
    shard_slept_until_ = events_.now() + beyond_lease;
    Pause(shard, beyond_lease);
  });
}

void Fleet::Pause(NodeId node, TimeUs length) {
  Trace(fmt::format("node {} pauses for {:.1f} s", node, double(length) * 1e-6));
  for (auto& [id, p] : processes_) {
    if (p->node != node || p->over) continue;
    p->paused_until = std::max(p->paused_until, events_.now() + length);
    ++other_faults_;
  }
}

void Fleet::CrashWorker(std::uint32_t rank, TimeUs away_us) {
  if (down_) return;
  const ProcessId id = worker_of_rank_[rank];
  auto it = processes_.find(id);
  if (it == processes_.end() || it->second->over) return;
  ++crashes_;
  Trace(fmt::format("worker {} crashes: {}", rank, it->second->worker->Describe()));
  oracle_.OnWorkerGone(it->second->worker->client().welcome().incarnation);
  network_.RemoveProcess(id);
  processes_.erase(it);
  // Comes back at once, or late enough to be found dead first.
  const TimeUs back = away_us != 0       ? away_us
                      : rng_.Chance(0.7) ? TimeUs(rng_.Below(500'000))
                                         : TimeUs(rng_.Below(9'000'000));
  events_.At(events_.now() + back, [this, rank, id] {
    if (!down_ && worker_of_rank_[rank] == id) worker_of_rank_[rank] = StartWorker(rank);
  });
}

// A disk for cold rows that fails for good, or that gives back something else than was written.
void Fleet::PlanTierFaults(ProcessId id) {
  const Faults& f = scenario_.faults;
  const auto sometime = [&] { return events_.now() + 100'000 + TimeUs(tier_rng_.Below(std::uint64_t(f.until_us))); };
  if (!f.fail_tier && !f.damage_tier) return;
  if (!tier_rng_.Chance(1.0 / scenario_.shards)) return;
  events_.At(sometime(), [this, id] {
    const auto process = processes_.find(id);
    if (process == processes_.end() || process->second->over) return;
    if (scenario_.faults.damage_tier && !process->second->cold->Damage()) return;
    if (scenario_.faults.fail_tier) process->second->cold->FailWith({ErrorCode::kIo, "tier: No space left on device"});
    ++disk_->failed;
    ++other_faults_;
  });
}

void Fleet::PlanTimeJumps() {
  const auto most = std::uint64_t(scenario_.faults.until_us);
  for (std::uint32_t i = 0; i < scenario_.faults.time_jumps; ++i)
    events_.At(100'000 + TimeUs(time_rng_.Below(most)), [this] { JumpInTime(); });
}

// The clock of a shard, or of all, is seconds to hours further than it was: it slept, or had nothing to do. Before it
// has heard the scheduler again it answers nobody (rule N5).
void Fleet::JumpInTime() {
  if (down_ || events_.now() > scenario_.faults.until_us) return;
  const TimeUs by = TimeUs(1e6 * std::pow(10.0, 4 * time_rng_.Unit()));
  const bool all = time_rng_.Chance(0.5);
  const auto one = std::uint32_t(time_rng_.Below(scenario_.shards));
  Trace(fmt::format("the time of {} jumps by {:.1f} s", all ? "all shards" : fmt::format("shard {}", one),
                    double(by) * 1e-6));
  ++time_jumps_;
  for (auto& [id, p] : processes_) {
    if (!p->shard || p->over || (!all && p->rank != one)) continue;
    p->ahead += by;
    ArmTimer(id, *p);
  }
}

// The moments at which the view changes are those at which it matters that somebody does not hear of it.
void Fleet::CutAtChange() {
  if (!rng_.Chance(scenario_.faults.cut_at_change)) return;
  const std::uint32_t shard = std::uint32_t(rng_.Below(scenario_.shards));
  if (events_.now() < next_cut_[shard]) return;
  const bool deaf_only = rng_.Chance(0.5);
  const TimeUs until = events_.now() + 200'000 + TimeUs(rng_.Below(deaf_only ? 3'000'000 : 1'500'000));
  next_cut_[shard] = until + kBetweenCutsUs;
  network_.Cut(0, 1 + shard, !deaf_only, until);
}

// What a shard says of its end is lost, and must be said again.
void Fleet::LoseFirstWord(const Process& shard) {
  Trace(fmt::format("shard {} stops: {}", shard.rank, shard.shard->stop_reason().reason));
  if (tier_rng_.Chance(0.5)) network_.Cut(shard.node, 0, false, events_.now() + 500'000);
}

// A worker that goes beyond the clock of a checkpoint without its part having come: the checkpoint is void (rule K1).
void Fleet::CrashAtCut(Process& p) {
  const CheckpointOrder& order = p.worker->client().view().checkpoint;
  if (order.at_clock && order.id > p.order && events_.now() < scenario_.faults.until_us) {
    p.order = order.id;
    if (!p.crash_at && rng_.Chance(scenario_.faults.crash_at_cut)) {
      p.crash_at = order.clock + 2;
      network_.Cut(p.node, 0, false, events_.now() + 2'000'000);
    }
  }
  if (!p.crash_at || p.worker->client().clock() < *p.crash_at) return;
  p.crash_at.reset();
  events_.At(events_.now() + TimeUs(rng_.Below(20'000)), [this, rank = p.rank] { CrashWorker(rank); });
}

bool Fleet::SilencedShard() const {
  // By the fastest clock.
  const auto lease = TimeUs(scenario_.job.fleet.lease_seconds * 1e6 * (1 - 2 * scenario_.faults.clock_drift));
  return std::any_of(said_.begin(), said_.end(), [&](const auto& said) {
    const auto heard = heard_.find(said.first);
    return events_.now() - said.second < lease / 4 && (heard == heard_.end() || events_.now() - heard->second > lease);
  });
}

bool Fleet::Excused(const Shutdown& reason) const {
  const auto says = [&](std::string_view text) { return reason.reason.find(text) != std::string::npos; };
  const bool damaged = scenario_.faults.damage_tier && reason.code == ErrorCode::kCorrupt;
  if (sync_failed_ && reason.code == ErrorCode::kIo && says("cannot sync")) return true;
  const bool tier_full = scenario_.faults.fail_tier && reason.code == ErrorCode::kIo && says("tier: ");
  // The run does without any other checkpoint (rule K3).
  const bool last_cut =
      reason.code == ErrorCode::kIo && (says("(final) could not be written") || says("(stop) could not be written"));
  if (disk_->failed > 0 && (damaged || tier_full || last_cut)) return true;
  // A stop waits for its checkpoint for a minute; a disk that stalls, or slices far apart, may take longer.
  const bool late = reason.code == ErrorCode::kTimeout && says("did not come to an end in time");
  if (late && (scheduler_store_.stalls() > 0 || scenario_.cut_pause_us > kLongPauseUs)) return true;
  return reason.code == ErrorCode::kUnavailable && reason.reason.starts_with("shard ") &&
         (shard_slept_until_ != 0 || server_deaths_ != 0 || SilencedShard());
}

}  // namespace tarn::sim
