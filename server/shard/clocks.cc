#include "server/shard/clocks.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace tarn::server {

Cohort::Changes Clocks::Adopt(const std::vector<WorkerEntry>& workers) {
  Cohort::Changes changes = cohort_.Adopt(workers);
  for (const auto& [worker, end] : changes.ended) Discard(worker, end);
  for (const Incarnation worker : changes.dropped) Discard(worker, cohort_.minimum());
  return changes;
}

void Clocks::SetOrder(const CheckpointOrder& order) {
  const bool due = order.at_clock && order.id > cut_order_;
  cohort_.HoldAt(due ? std::optional(order.clock) : std::nullopt);
}

void Clocks::NoteCut(CheckpointId order) {
  cut_order_ = order;
  cohort_.HoldAt(std::nullopt);
}

void Clocks::Discard(Incarnation worker, Clock from) {
  for (const auto& [clock, c] : buckets_.Void(worker, from))
    observer_->OnPushVoided(worker, c.partition, c.sequence, clock);
}

Status Clocks::CloseGathered(TableId table, Clock clock) {
  const auto bucket = buckets_.buckets().find(clock);
  if (bucket == buckets_.buckets().end() || !(*policies_)[table].MayClose(clock, bucket->second.contributions, cohort_))
    return {};
  return Close(clock, buckets_.Take(clock, [&](TableId id) { return id == table; }));
}

Status Clocks::CloseReady() {
  TARN_RETURN_IF_ERROR(CloseUpTo(Clock(UINT64_MAX)));
  rows_->expiry().AdvanceClock(std::max(cohort_.minimum(), policies_->OpenClockMax(cohort_)));
  return {};
}

Status Clocks::CloseBelow(Clock limit) {
  TARN_RETURN_IF_ERROR(CloseUpTo(limit));
  rows_->expiry().AdvanceClock(limit);
  return {};
}

Status Clocks::CloseUpTo(Clock limit) {
  for (std::optional<Clock> clock = buckets_.First(); clock && *clock < limit;) {
    const std::vector<Contribution>& gathered = buckets_.buckets().at(*clock).contributions;
    std::vector<Contribution> closing =
        buckets_.Take(*clock, [&](TableId table) { return (*policies_)[table].MayClose(*clock, gathered, cohort_); });
    if (!closing.empty()) TARN_RETURN_IF_ERROR(Close(*clock, std::move(closing)));
    clock = buckets_.Behind(*clock);
  }
  return {};
}

Status Clocks::Close(Clock clock, std::vector<Contribution> contributions) {
  // May pass several boundaries: without a push in between, only the last has an effect (rule R4).
  rows_->expiry().AdvanceClock(clock);
  SortForClosing(&contributions);
  for (auto begin = contributions.begin(); begin != contributions.end();) {
    const TableId table = begin->table;
    const auto end = std::find_if(begin, contributions.end(), [&](const Contribution& c) { return c.table != table; });
    TARN_RETURN_IF_ERROR(CloseTable(clock, {begin, end}));
    begin = end;
  }
  observer_->OnClockClosed(clock);
  return {};
}

// Counts a contribution that the policy has not chosen as discarded (rule C8).
void Clocks::Void(const Contribution& contribution, Clock clock) {
  rows_->counters().discarded += contribution.count;
  observer_->OnPushVoided(contribution.incarnation, contribution.partition, contribution.sequence, clock);
}

Status Clocks::CloseTable(Clock clock, std::span<Contribution> contributions) {
  const ConsistencyPolicy::Count count =
      (*policies_)[contributions.front().table].Choose(clock, contributions, cohort_);
  if (count.counts.empty()) return CloseWith(clock, contributions, count.divisor);
  std::vector<Contribution> chosen;
  for (std::size_t i = 0; i < contributions.size(); ++i) {
    Contribution& c = contributions[i];
    if (count.counts[i])
      chosen.push_back(std::move(c));
    else
      Void(c, clock);
  }
  return CloseWith(clock, chosen, count.divisor);
}

Status Clocks::CloseWith(Clock clock, std::span<const Contribution> chosen, std::uint32_t divisor) {
  if (chosen.empty()) return {};
  observer_->OnTableClosed(chosen.front().table, clock, divisor, chosen);
  return closer_.Close(clock, chosen, divisor, rows_);
}

}  // namespace tarn::server
