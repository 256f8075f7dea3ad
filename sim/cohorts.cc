#include "sim/cohorts.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tarn::sim {

void Cohorts::BeginAnew() {
  last_version_ = {};
  last_epoch_ = {};
  entries_.clear();
}

std::string Cohorts::OnView(const View& view) {
  if (view.version == last_version_) return {};
  std::string wrong;
  const auto fail = [&wrong](std::string what) {
    if (wrong.empty()) wrong = std::move(what);
  };
  if (view.version < last_version_)
    fail(fmt::format("the scheduler's view version went back from {} to {}", last_version_.value, view.version.value));
  if (view.routes.epoch < last_epoch_)
    fail(fmt::format("the route map's epoch went back from {} to {}", last_epoch_.value, view.routes.epoch.value));
  view_ = view;
  last_version_ = view.version;
  last_epoch_ = view.routes.epoch;
  for (const WorkerEntry& entry : view.workers) {
    const auto [it, fresh] = entries_.try_emplace(entry.incarnation, entry);
    if (fresh) continue;
    WorkerEntry& known = it->second;
    if (known.state == WorkerState::kEnded && (entry.state != WorkerState::kEnded || entry.end != known.end))
      fail(fmt::format("incarnation {}: its verdict changed", entry.incarnation.value));
    if (known.join != entry.join)
      fail(fmt::format("incarnation {}: its join clock changed from {} to {}", entry.incarnation.value,
                       known.join.value, entry.join.value));
    known = entry;
  }
  return wrong;
}

bool Cohorts::HasEnded(Incarnation worker) const {
  const auto it = entries_.find(worker);
  return it == entries_.end() || it->second.state == WorkerState::kEnded;
}

bool Cohorts::nobody_died() const {
  const auto live = [](const auto& entry) { return entry.second.state == WorkerState::kLive; };
  return gone_.empty() && std::ranges::all_of(entries_, live);
}

double Cohorts::SizeAt(Clock clock) const {
  return double(std::ranges::count_if(entries_, [&](const auto& e) { return e.second.InCohort(clock); }));
}

bool Cohorts::Has(Incarnation worker, Clock clock) const {
  const auto it = entries_.find(worker);
  return it != entries_.end() && it->second.InCohort(clock);
}

bool Cohorts::IsBeyond(Incarnation worker, Clock clock) const {
  const auto at = clocks_.find(worker);
  return Has(worker, clock) && at != clocks_.end() && at->second > clock;
}

std::uint32_t Cohorts::BeyondAt(Clock clock) const {
  return std::uint32_t(std::ranges::count_if(entries_, [&](const auto& e) { return IsBeyond(e.first, clock); }));
}

std::string Cohorts::CheckGroundTruth(Clock use, std::uint64_t bound, std::uint32_t backups) const {
  std::uint32_t behind = 0;
  for (const WorkerEntry& entry : view_.workers) {
    if (entry.state != WorkerState::kLive) continue;
    const auto it = clocks_.find(entry.incarnation);
    const Clock clock = it == clocks_.end() ? entry.join : std::max(it->second, entry.join);
    if (clock.value + bound < use.value && ++behind > backups)
      return fmt::format("a pull of clock {} was served while worker {} is at {}", use.value, entry.rank.value,
                         clock.value);
  }
  return {};
}

}  // namespace tarn::sim
