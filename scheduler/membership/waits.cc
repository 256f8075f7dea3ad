#include "scheduler/membership/waits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <span>
#include <vector>

#include "core/log.h"

namespace tarn::scheduler {
namespace {

constexpr std::size_t kNamedMax = 8;

// "worker 3", "workers 0, 3" or "workers 0, 1, 2, 3, 4, 5, 6, 7 and 92 more".
std::string Named(std::string_view what, const std::set<std::uint32_t>& all) {
  const std::vector<std::uint32_t> ids(all.begin(), all.end());
  const auto named = std::span(ids).first(std::min(ids.size(), kNamedMax));
  std::string text = fmt::format("{}{} {}", what, ids.size() == 1 ? "" : "s", fmt::join(named, ", "));
  if (ids.size() > kNamedMax) text += fmt::format(" and {} more", ids.size() - kNamedMax);
  return text;
}

std::string Missing(const Membership& membership, const FleetSection& fleet) {
  std::set<std::uint32_t> servers, workers;
  for (const ShardNode& shard : membership.shards().all())
    if (!shard.joined) servers.insert(shard.shard.value / fleet.shards);
  for (std::uint32_t rank = 0; rank < fleet.workers; ++rank) workers.insert(rank);
  for (const auto& [id, worker] : membership.workers().all())
    if (worker.state == WorkerNode::State::kWaiting) workers.erase(worker.rank.value);
  std::vector<std::string> parts;
  if (!servers.empty()) parts.push_back(Named("server", servers));
  if (!workers.empty()) parts.push_back(Named("worker", workers));
  if (parts.empty()) return {};
  return fmt::format("waiting for {} to join", fmt::join(parts, " and "));
}

}  // namespace

std::string WaitsFor(const Membership& membership, const FleetSection& fleet, TimeUs now, TimeUs listening_since) {
  if (!membership.formed() || membership.awaits_all()) return Missing(membership, fleet);
  const auto lease_us = static_cast<TimeUs>(fleet.lease_seconds * 1e6);
  const auto silence = [&](TimeUs heard) { return now - std::max(heard, listening_since); };
  TimeUs longest = 0, longest_loading = 0;
  std::set<std::uint32_t> shards, loading, workers;
  const auto add_if_silent = [&](TimeUs heard, std::uint32_t id, std::set<std::uint32_t>* silent, TimeUs* most) {
    if (silence(heard) < std::min(kWaitNotePeriodUs, lease_us / 2)) return;
    silent->insert(id);
    *most = std::max(*most, silence(heard));
  };
  for (const ShardNode& shard : membership.shards().all())
    shard.confirmed.value == 0 ? add_if_silent(shard.welcomed, shard.shard.value, &loading, &longest_loading)
                               : add_if_silent(shard.heard, shard.shard.value, &shards, &longest);
  for (const WorkerNode* worker : membership.workers().Live())
    add_if_silent(worker->heard, worker->rank.value, &workers, &longest);
  if (!shards.empty() || !workers.empty()) {
    std::vector<std::string> parts;
    if (!shards.empty()) parts.push_back(Named("shard", shards));
    if (!workers.empty()) parts.push_back(Named("worker", workers));
    return fmt::format("waiting for {}, silent for {} s; a node that is silent for {:g} s is declared dead",
                       fmt::join(parts, " and "), longest / 1'000'000, fleet.lease_seconds);
  }
  if (loading.empty()) return {};
  return fmt::format("waiting for {}, which {} loading rows for {} s", Named("shard", loading),
                     loading.size() == 1 ? "has been" : "have been", longest_loading / 1'000'000);
}

std::string WaitsForTicks(const Membership& membership, const TickWaits& waits, TimeUs now, TimeUs listening_since) {
  const auto live = membership.workers().Live();
  Clock furthest;
  std::multiset<Clock> acked;
  for (const WorkerNode* worker : live) {
    furthest = std::max(furthest, worker->clock);
    acked.insert(worker->acked_clock);
  }
  if (acked.empty()) return {};
  // The acknowledged clock of the slowest worker for which others wait.
  const Clock slowest = *std::next(acked.begin(), std::min<std::ptrdiff_t>(waits.backups, std::ssize(acked) - 1));
  std::set<std::uint32_t> ranks;
  const WorkerNode* slowest_named = nullptr;  // of `ranks`
  TimeUs longest = 0;
  bool for_cut = false;
  for (const WorkerNode* worker : live) {
    const TimeUs age = now - std::max(worker->ticked, listening_since);
    // A worker that waits for the slowest one cannot tick.
    const bool held = waits.bound && worker->acked_clock.value > slowest.value + *waits.bound;
    const bool holds_clock = waits.cut.clock && worker->acked_clock < *waits.cut.clock && !held;
    const bool holds_cut = holds_clock || waits.cut.programs.contains(worker->incarnation);
    const bool holds_others = waits.bound && worker->acked_clock.value + *waits.bound < furthest.value;
    if (age < kWaitNotePeriodUs || (!holds_cut && !holds_others)) continue;
    ranks.insert(worker->rank.value);
    for_cut |= holds_cut;
    longest = std::max(longest, age);
    if (slowest_named == nullptr || worker->acked_clock < slowest_named->acked_clock) slowest_named = worker;
  }
  if (slowest_named == nullptr || (!for_cut && ranks.size() <= waits.backups)) return {};
  return fmt::format(
      "waiting for {} to tick: alive, but at clock {} for {} s{}{}; a program must call Tick after each clock; "
      "stop a worker that hangs",
      Named("worker", ranks), slowest_named->acked_clock.value, longest / 1'000'000,
      furthest > slowest_named->acked_clock ? fmt::format(", others are at clock {}", furthest.value) : "",
      !for_cut          ? ""
      : waits.cut.clock ? fmt::format(", and a checkpoint waits for clock {}", waits.cut.clock->value)
                        : ", and a checkpoint waits for the state of its program");
}

}  // namespace tarn::scheduler
