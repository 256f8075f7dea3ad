#include "server/cohort.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tarn::server {

Cohort::Changes Cohort::Adopt(const std::vector<WorkerEntry>& entries) {
  Changes changes;
  std::set<Incarnation> kept;
  for (const WorkerEntry& entry : entries) {
    kept.insert(entry.incarnation);
    auto [it, added] = members_.try_emplace(entry.incarnation);
    Member& member = it->second;
    const WorkerState before = added ? WorkerState::kLive : member.entry.state;
    member.entry = entry;
    if (added) member.tick = entry.join;
    if (before == WorkerState::kLive && entry.state != WorkerState::kLive) changes.refused.push_back(entry.incarnation);
    if (before != WorkerState::kEnded && entry.state == WorkerState::kEnded) {
      member.tick = entry.end;
      changes.ended.emplace_back(entry.incarnation, entry.end);
    }
  }
  for (auto it = members_.begin(); it != members_.end();) {
    if (kept.contains(it->first)) {
      ++it;
      continue;
    }
    changes.dropped.push_back(it->first);
    it = members_.erase(it);
  }
  ticks_.clear();
  for (const auto& [incarnation, member] : members_)
    if (HoldsBack(member)) ++ticks_[member.tick];
  UpdateMinimum();
  return changes;
}

void Cohort::UpdateMinimum() {
  Clock least;
  if (!ticks_.empty()) {
    least = ticks_.begin()->first;
  } else {
    for (const auto& [incarnation, member] : members_) least = std::max(least, member.entry.end);
  }
  minimum_ = std::max(minimum_, least);
}

Expected<const Cohort::Member*> Cohort::Check(const Sender& sender) const {
  const auto it = members_.find(sender.incarnation);
  if (it == members_.end()) {
    for (const auto& [incarnation, member] : members_)
      if (member.entry.rank.value == sender.rank && incarnation > sender.incarnation)
        return Fail(ErrorCode::kFenced, fmt::format("worker {}: incarnation {} is over, {} has taken its place",
                                                    sender.rank, sender.incarnation.value, incarnation.value));
    return Fail(ErrorCode::kUnavailable,
                fmt::format("worker {}: incarnation {} is not in the view yet", sender.rank, sender.incarnation.value));
  }
  const Member& member = it->second;
  if (member.entry.rank.value != sender.rank)
    return Fail(ErrorCode::kFenced, fmt::format("incarnation {} is worker {}, not worker {}", sender.incarnation.value,
                                                member.entry.rank.value, sender.rank));
  if (member.entry.state != WorkerState::kLive)
    return Fail(ErrorCode::kFenced,
                fmt::format("worker {}: incarnation {} is over", sender.rank, sender.incarnation.value));
  return &member;
}

void Cohort::Tick(Incarnation incarnation, Clock clock, const DataPosition& position) {
  Member& member = members_.at(incarnation);
  if (clock < member.tick) return;
  member.position = position;
  if (clock == member.tick) return;
  if (const auto it = ticks_.find(member.tick); --it->second == 0) ticks_.erase(it);
  ++ticks_[clock];
  member.tick = clock;
  UpdateMinimum();
}

void Cohort::NotePushed(Incarnation incarnation, Clock clock) {
  if (const auto it = members_.find(incarnation); it != members_.end())
    it->second.pushed = std::max(it->second.pushed, clock + 1);
}

Clock Cohort::maximum() const {
  Clock most = minimum_;
  for (const auto& [incarnation, member] : members_) most = std::max(most, member.tick);
  return most;
}

std::uint32_t Cohort::Size(Clock t) const {
  std::uint32_t size = 0;
  for (const auto& [incarnation, member] : members_) size += member.entry.InCohort(t) ? 1 : 0;
  return size;
}

std::vector<FencedTick> Cohort::Fenced() const {
  std::vector<FencedTick> fenced;
  for (const auto& [incarnation, member] : members_)
    if (member.entry.state == WorkerState::kFencing)
      fenced.push_back({incarnation, member.tick, member.position, member.pushed});
  return fenced;
}

}  // namespace tarn::server
