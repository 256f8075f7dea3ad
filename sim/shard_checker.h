// Checks the events of one shard: sequences without gaps and repetitions, and a sufficient minimum clock for each
// answer.
#pragma once

#include <functional>
#include <map>
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
  void OnPushApplied(Incarnation, PartitionId, Sequence, Clock) override;
  void OnWatermark(Incarnation incarnation, PartitionId partition, Sequence sequence) override {
    last_[{incarnation, partition}] = sequence;
  }
  void OnPushVoided(Incarnation, PartitionId, Sequence, Clock) override;
  void OnPullServed(Incarnation, TableId, Clock use, Clock minimum) override;
  void OnClockClosed(Clock) override;
  // The highest sequence that was applied or voided.
  Sequence Last(Incarnation incarnation, PartitionId partition) const;

 private:
  Oracle* oracle_;
  std::function<ConsistencySpec(TableId)> spec_of_;
  std::map<std::pair<Incarnation, PartitionId>, Sequence> last_;
  std::function<void()> during_push_;
  Clock last_minimum_;
  bool closed_any_ = false;
  Clock last_closed_;
};

}  // namespace tarn::sim
