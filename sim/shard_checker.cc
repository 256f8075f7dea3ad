#include "sim/shard_checker.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <vector>

namespace tarn::sim {

void ShardChecker::OnPushApplied(Incarnation incarnation, PartitionId partition, Sequence sequence, Clock clock) {
  oracle_->OnPushAccepted(incarnation, clock);
  if (during_push_) during_push_();
  if (versions_of_) CheckVersion(partition);
  Sequence& last = last_[{incarnation, partition}];
  if (sequence.value != last.value + 1)
    oracle_->Fail(fmt::format("incarnation {} partition {}: applied sequence {} after {}", incarnation.value,
                              partition.value, sequence.value, last.value));
  last = sequence;
}

// Called before the section is applied.
void ShardChecker::CheckVersion(PartitionId partition) {
  const auto version = versions_of_(partition);
  if (!version) return;
  const auto expected = versions_.try_emplace(partition, *version).first;
  if (*version != expected->second)
    oracle_->Fail(
        fmt::format("partition {}: version {} after {} applied sections", partition.value, *version, expected->second));
  expected->second = *version + 1;
}

void ShardChecker::OnPushVoided(Incarnation incarnation, PartitionId partition, Sequence sequence, Clock) {
  Sequence& last = last_[{incarnation, partition}];
  last = std::max(last, sequence);
}

Sequence ShardChecker::Last(Incarnation incarnation, PartitionId partition) const {
  const auto it = last_.find({incarnation, partition});
  return it == last_.end() ? Sequence() : it->second;
}

void ShardChecker::OnPullServed(WorkerRank, Incarnation incarnation, const Pull& pull, Clock open) {
  const Clock use = pull.clock;
  const ConsistencySpec spec = spec_of_(pull.tables.front().table);
  for (const PullPart& part : pull.tables) {
    if (spec_of_(part.table) != spec) oracle_->Fail("tables of different consistency were answered together");
    if (open < last_open_[part.table])
      oracle_->Fail(fmt::format("table {}: the open clock of a shard went back from {} to {}", part.table.value,
                                last_open_[part.table].value, open.value));
    last_open_[part.table] = open;
  }
  if (spec.mode == ConsistencyMode::kAsp) return;
  const std::uint64_t bound = StalenessBound(spec);
  if (open.value + bound < use.value)
    oracle_->Fail(
        fmt::format("incarnation {}: pull of clock {} served at clock {}", incarnation.value, use.value, open.value));
  oracle_->CheckGroundTruth(use, bound, spec.backup_workers);
}

// Checks gradients only: a shard applies assignments and deletions of late workers after their clock has closed (rule
// C8).
void ShardChecker::OnTableClosed(TableId table, Clock clock, std::uint32_t divisor,
                                 std::span<const server::Contribution> counted) {
  std::vector<server::Contribution> gradients;
  std::ranges::copy_if(counted, std::back_inserter(gradients),
                       [](const server::Contribution& c) { return c.action == PushAction::kStep; });
  if (gradients.empty()) return;
  const auto [last, first] = last_closed_.try_emplace(table, clock);
  if (!first && clock <= last->second)
    oracle_->Fail(
        fmt::format("table {}: clock {} closed after clock {}", table.value, clock.value, last->second.value));
  last->second = clock;
  if (const std::uint32_t backups = spec_of_(table).backup_workers; backups != 0)
    oracle_->Check(oracle_->counts().OnTableClosed(table, clock, divisor, gradients, backups));
}

}  // namespace tarn::sim
