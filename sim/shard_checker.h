// Checks the events of one shard: its partitions apply sequences without gaps or repetitions, and each section of an
// immediate table raises the version by one; the open clock suffices for each answer; clocks close in order.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "server/shard/shard.h"
#include "sim/oracle.h"

namespace tarn::sim {

class ShardChecker : public server::ShardObserver {
 public:
  // `spec_of`: returns the consistency of a table.
  ShardChecker(Oracle* oracle, std::function<ConsistencySpec(TableId)> spec_of)
      : oracle_(oracle), spec_of_(std::move(spec_of)) {}
  // Sets a function that is called while the shard handles a push, after it has checked the message; may be empty.
  void SetDuringPush(std::function<void()> call) { during_push_ = std::move(call); }
  // Sets a function that returns the sum of a partition's versions over all tables, or none while the shard starts. All
  // tables are immediate: each applied section raises one version at once.
  using VersionsOf = std::function<std::optional<std::uint64_t>(PartitionId)>;
  void SetVersions(VersionsOf versions_of) { versions_of_ = std::move(versions_of); }
  void OnPushApplied(Incarnation, PartitionId, Sequence, Clock) override;
  void OnWatermark(Incarnation incarnation, PartitionId partition, Sequence sequence) override {
    last_[{incarnation, partition}] = sequence;
  }
  void OnRestored(Clock minimum, std::span<const PartitionId> owned) override {
    last_closed_.clear();
    oracle_->counts().OnRestored(minimum, owned);
    oracle_->ForgetAccepted();
  }
  void OnPushVoided(Incarnation, PartitionId, Sequence, Clock) override;
  void OnPullServed(WorkerRank, Incarnation, const Pull&, Clock open) override;
  void OnTableClosed(TableId table, Clock clock, std::uint32_t divisor,
                     std::span<const server::Contribution> counted) override;
  // The highest sequence that was applied or voided.
  Sequence Last(Incarnation incarnation, PartitionId partition) const;

 private:
  void CheckVersion(PartitionId partition);

  Oracle* oracle_;
  std::function<ConsistencySpec(TableId)> spec_of_;
  std::map<std::pair<Incarnation, PartitionId>, Sequence> last_;
  std::function<void()> during_push_;
  VersionsOf versions_of_;
  std::map<PartitionId, std::uint64_t> versions_;  // expected at the next push
  std::map<TableId, Clock> last_open_;
  std::map<TableId, Clock> last_closed_;
};

}  // namespace tarn::sim
