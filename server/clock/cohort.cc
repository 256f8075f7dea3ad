#include "server/clock/cohort.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/limits.h"

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
  CountTicks();
  UpdateMinimum();
  return changes;
}

void Cohort::CountTicks() {
  ticks_.clear();
  for (const auto& [incarnation, member] : members_)
    if (CountsForMinimum(member)) ++ticks_[member.tick];
}

void Cohort::Restore(std::map<Incarnation, Member> members, Clock minimum) {
  members_ = std::move(members);
  minimum_ = minimum;
  CountTicks();
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

// Never decreases: a new member counts with its join clock, which no worker has passed when it joins (rule M2). A
// member that has ended may have been the fastest, and the clocks that it opened stay open; its entry exists until the
// minimum clock has reached its end (rule M4).
Clock Cohort::Open(std::uint32_t backups) const {
  Clock open;
  std::uint32_t up_to = 0;
  for (const auto& [tick, members] : ticks_) {
    open = tick;
    up_to += members;
    if (up_to > backups) break;
  }
  if (up_to <= backups)
    for (const auto& [incarnation, member] : members_)
      if (!CountsForMinimum(member)) open = std::max(open, member.entry.end);
  return std::max(minimum_, std::min(open, hold_));
}

std::uint32_t Cohort::Finished(Clock t) const {
  std::uint32_t finished = 0;
  for (const auto& [incarnation, member] : members_) finished += member.entry.InCohort(t) && member.tick > t ? 1 : 0;
  return finished;
}

bool Cohort::HasFinished(Incarnation incarnation, Clock t) const {
  const auto member = members_.find(incarnation);
  return member != members_.end() && member->second.entry.InCohort(t) && member->second.tick > t;
}

Expected<const Cohort::Member*> Cohort::Check(const Sender& sender) const {
  const auto it = members_.find(sender.incarnation);
  if (it == members_.end()) {
    for (const auto& [incarnation, member] : members_)
      if (member.entry.rank.value == sender.rank && incarnation > sender.incarnation)
        return Fail(ErrorCode::kFenced, fmt::format("worker {}: incarnation {} was replaced by incarnation {}",
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
                fmt::format("worker {}: incarnation {} is fenced or has ended", sender.rank, sender.incarnation.value));
  return &member;
}

bool Cohort::IsNews(Incarnation incarnation, const struct Tick& tick) const {
  const Member& member = members_.at(incarnation);
  return tick.clock > member.tick || (tick.clock == member.tick && tick.position != member.position);
}

void Cohort::Tick(Incarnation incarnation, const struct Tick& tick, TimeUs now) {
  Member& member = members_.at(incarnation);
  if (tick.clock < member.tick) return;
  if (tick.clock > member.tick) {
    KeepEarlier(&member, tick.earlier);
    const bool both_known = now != 0 && member.ticked_at != 0;
    member.clock_us = both_known ? (now - member.ticked_at) / (tick.clock.value - member.tick.value) : 0;
    member.ticked_at = now;
    if (const auto it = ticks_.find(member.tick); --it->second == 0) ticks_.erase(it);
    ++ticks_[tick.clock];
    member.tick = tick.clock;
    UpdateMinimum();
  }
  member.position = tick.position;
}

// Adds the previous newest tick to the earlier ones, and the ticks that this shard did not receive.
void Cohort::KeepEarlier(Member* member, const std::vector<TickPoint>& reported) const {
  std::vector<TickPoint>& kept = member->earlier;
  kept.push_back({member->tick, member->position});
  for (const TickPoint& point : reported)
    if (point.clock > kept.back().clock) kept.push_back(point);
  std::size_t first = kept.size() - std::min<std::size_t>(kept.size(), limits::kTicksKeptMax);
  while (first + 1 < kept.size() && kept[first + 1].clock <= minimum_) ++first;
  kept.erase(kept.begin(), kept.begin() + static_cast<std::ptrdiff_t>(first));
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

std::vector<WorkerTick> Cohort::FencedTicks() const {
  std::vector<WorkerTick> ticks;
  for (const auto& [incarnation, member] : members_) {
    if (member.entry.state != WorkerState::kFencing) continue;
    for (const TickPoint& point : member.earlier)
      if (ticks.size() < limits::kFencedTicksMax) ticks.push_back({incarnation, point.clock, point.position});
  }
  return ticks;
}

}  // namespace tarn::server
