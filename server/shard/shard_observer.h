// Events within the steps of a shard, for checkers and metrics.
#pragma once

#include "core/types.h"

namespace tarn::server {

// All methods do nothing by default. Called synchronously within a step.
class ShardObserver {
 public:
  virtual ~ShardObserver() = default;
  virtual void OnPushApplied(Incarnation, PartitionId, Sequence, Clock) {}  // applied or gathered, once
  // Restored from a log: sequences up to this one were applied or gathered.
  virtual void OnWatermark(Incarnation, PartitionId, Sequence) {}
  virtual void OnPushVoided(Incarnation, PartitionId, Sequence, Clock) {}  // does not count (rule M3)
  virtual void OnPullServed(Incarnation, TableId, Clock /*use*/, Clock /*minimum*/) {}
  virtual void OnClockClosed(Clock) {}
};

}  // namespace tarn::server
