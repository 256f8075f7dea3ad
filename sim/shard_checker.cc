#include "sim/shard_checker.h"

#include <fmt/format.h>

#include <algorithm>

namespace tarn::sim {

void ShardChecker::OnPushApplied(Incarnation incarnation, PartitionId partition, Sequence sequence, Clock) {
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

void ShardChecker::OnPullServed(WorkerRank, Incarnation incarnation, const Pull& pull, Clock minimum) {
  const Clock use = pull.clock;
  const ConsistencySpec spec = spec_of_(pull.table);
  if (minimum < last_minimum_) oracle_->Fail("a shard's minimum clock went back");
  last_minimum_ = minimum;
  if (spec.mode == ConsistencyMode::kAsp) return;
  const std::uint64_t bound = spec.mode == ConsistencyMode::kSsp ? spec.staleness : 0;
  if (minimum.value + bound < use.value)
    oracle_->Fail(fmt::format("incarnation {}: pull of clock {} served at minimum clock {}", incarnation.value,
                              use.value, minimum.value));
  oracle_->CheckGroundTruth(use, bound);
}

void ShardChecker::OnClockClosed(Clock clock) {
  if (closed_any_ && clock <= last_closed_) oracle_->Fail("clocks closed out of order");
  closed_any_ = true;
  last_closed_ = clock;
}

}  // namespace tarn::sim
