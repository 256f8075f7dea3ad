// How workers end and how new ones come in: liveness, fencing, verdicts and proposals (rules N4, M1-M5).
#include <algorithm>
#include <utility>

#include "scheduler/membership/membership.h"

namespace tarn::scheduler {
std::optional<ShardId> Membership::SilentShard(TimeUs now, TimeUs listening_since) const {
  if (!formed_) return std::nullopt;
  for (const ShardNode& shard : shards_)
    if (now - std::max(shard.heard, listening_since) > options_.lease_us) return shard.shard;
  return std::nullopt;
}

std::vector<Incarnation> Membership::SilentWorkers(TimeUs now, TimeUs listening_since) const {
  std::vector<Incarnation> silent;
  for (const WorkerNode* worker : Live())
    if (now - std::max(worker->heard, listening_since) > options_.lease_us) silent.push_back(worker->incarnation);
  return silent;
}

void Membership::DropSilentJoiners(TimeUs now, TimeUs listening_since) {
  auto silent = [&](TimeUs heard) { return now - std::max(heard, listening_since) > options_.lease_us; };
  if (!formed_)
    for (ShardNode& shard : shards_)
      if (shard.joined && silent(shard.heard)) shard.joined = false;
  std::vector<Incarnation> gone;
  for (const auto& [id, worker] : workers_)
    if (worker.state == WorkerNode::State::kWaiting && silent(worker.heard)) gone.push_back(id);
  for (Incarnation id : gone) Forget(id);
}

WorkerEntry* Membership::Entry(Incarnation worker) {
  for (WorkerEntry& entry : view_.workers)
    if (entry.incarnation == worker) return &entry;
  return nullptr;
}

void Membership::Fence(Incarnation id) {
  WorkerNode& worker = workers_.at(id);
  if (worker.state != WorkerNode::State::kLive) return;
  Changed();
  worker.state = WorkerNode::State::kFencing;
  Entry(id)->state = WorkerState::kFencing;
  fenced_[id].clear();
  ++died_;
}

void Membership::OnLeave(Incarnation id, const struct Leave& leave) {
  WorkerNode& worker = workers_.at(id);
  // All that it pushed is acknowledged everywhere: what it says is what the shards hold.
  worker.left = true;
  End(&worker, std::max({leave.clock, worker.acked_clock, worker.join}), leave.position, Clock(0));
}

void Membership::End(WorkerNode* worker, Clock end, const DataPosition& position, Clock pushed) {
  Changed();
  worker->state = WorkerNode::State::kEnded;
  WorkerEntry* entry = Entry(worker->incarnation);
  entry->state = WorkerState::kEnded;
  entry->end = end;
  ended_[worker->incarnation] = view_.version;
  fenced_.erase(worker->incarnation);
  largest_end_ = std::max(largest_end_, end);
  verdicts_.push_back({.worker = worker->incarnation,
                       .rank = worker->rank,
                       .join = worker->join,
                       .end = end,
                       .position = position,
                       .repeated = pushed > end ? pushed.value - end.value : 0});
}

std::vector<Verdict> Membership::TakeVerdicts() {
  std::vector<Incarnation> ready;
  for (const auto& [id, reports] : fenced_)
    if (reports.size() == shards_.size()) ready.push_back(id);
  if (restarting_ && formed_ && ready.size() == fenced_.size()) {
    restarting_ = false;
    if (options_.ends_together) EndAsOne(std::exchange(ready, {}));
  }
  if (restarting_) ready.clear();
  for (Incarnation id : ready) {
    WorkerNode& worker = workers_.at(id);
    FencedTick highest;
    Clock pushed;
    for (const auto& [shard, report] : fenced_[id]) {
      const FencedTick& tick = report.newest;
      if (tick.tick > highest.tick) highest = tick;
      pushed = std::max(pushed, tick.pushed);
    }
    End(&worker, std::max(highest.tick, worker.join), highest.position, pushed);
  }
  return std::exchange(verdicts_, {});
}

// Rule G4: all end at the least of their clocks, with the positions that they had there. Each shard that has a worker's
// newest tick has all of its ticks back to the shard's minimum clock, and that is no later.
void Membership::EndAsOne(const std::vector<Incarnation>& workers) {
  Clock together(UINT64_MAX);
  for (Incarnation id : workers) {
    Clock newest = workers_.at(id).join;
    for (const auto& [shard, report] : fenced_[id]) newest = std::max(newest, report.newest.tick);
    together = std::min(together, newest);
  }
  for (Incarnation id : workers) {
    WorkerNode& worker = workers_.at(id);
    TickPoint at{worker.join, {}};
    for (const auto& [shard, report] : fenced_[id]) {
      std::vector<TickPoint> ticks = report.earlier;
      ticks.push_back({report.newest.tick, report.newest.position});
      for (const TickPoint& tick : ticks)
        if (tick.clock <= together && tick.clock >= at.clock) at = tick;
    }
    End(&worker, std::max(together, worker.join), at.position, Clock(0));
    verdicts_.back().taken_back = true;
  }
}

std::vector<const WorkerNode*> Membership::Live() const {
  std::vector<const WorkerNode*> live;
  for (const auto& [id, worker] : workers_)
    if (worker.state == WorkerNode::State::kLive) live.push_back(&worker);
  return live;
}

bool Membership::AnyFencing() const { return !fenced_.empty(); }

Positions Membership::LivePositions() const {
  Positions positions;
  for (const WorkerNode* worker : Live()) positions[worker->incarnation] = worker->position;
  return positions;
}

void Membership::OpenProposal(bool drain) {
  Changed();
  ++view_.proposal.id;
  view_.proposal.open = true;
  view_.proposal.drain = drain;
}

void Membership::CloseProposal() {
  Changed();
  view_.proposal.open = view_.proposal.drain = false;
}

bool Membership::AllDrained() const {
  if (AnyFencing()) return false;
  const auto live = Live();
  return std::all_of(live.begin(), live.end(),
                     [&](const WorkerNode* worker) { return worker->drained == view_.proposal.id; });
}

bool Membership::AllReported() const {
  if (AnyFencing()) return false;
  const auto live = Live();
  return std::all_of(live.begin(), live.end(),
                     [&](const WorkerNode* worker) { return worker->proposal == view_.proposal.id; });
}

Clock Membership::FreeClock() const {
  const auto live = Live();
  if (live.empty()) return std::max(largest_end_, MinClock());
  Clock highest = largest_end_;
  for (const WorkerNode* worker : live) highest = std::max(highest, worker->clock);
  return highest + kProposalSlack + 1;
}

bool Membership::JoinersReady() const {
  if (!formed_ || AnyFencing() || restarting_) return false;
  if (admit_together_ && workers_waiting() < options_.workers) return false;
  return workers_waiting() > 0 && Room() > 0;
}

std::vector<WorkerNode> Membership::AdmitJoiners(Clock join) {
  std::vector<WorkerNode> admitted;
  admit_together_ = false;
  Changed();
  for (auto& [id, worker] : workers_) {
    if (worker.state != WorkerNode::State::kWaiting || Room() == 0) continue;
    MakeLive(&worker, join);
    admitted.push_back(worker);
  }
  return admitted;
}

Clock Membership::MinClock() const {
  Clock least = shards_.front().min_clock;
  for (const ShardNode& shard : shards_) least = std::min(least, shard.min_clock);
  return least;
}

std::uint64_t Membership::LogBytes() const {
  std::uint64_t most = 0;
  for (const ShardNode& shard : shards_) most = std::max(most, shard.log_bytes);
  return most;
}

Clock Membership::MaxClock() const {
  Clock highest = largest_end_;
  for (const ShardNode& shard : shards_) highest = std::max(highest, shard.min_clock);
  for (const auto& [id, worker] : workers_) highest = std::max(highest, worker.clock);
  return highest;
}

}  // namespace tarn::scheduler
