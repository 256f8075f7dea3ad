// What happens within the steps of a shard, for checkers and metrics.
#pragma once

#include "core/types.h"

namespace tarn::server {

// Events for checkers and metrics; all default to nothing. Called synchronously from within a step.
class ShardObserver {
 public:
  virtual ~ShardObserver() = default;
  virtual void OnPushApplied(Incarnation, PartitionId, Sequence, Clock) {}  // applied or gathered, once
  // A log has brought it back: sequences up to this one were applied or gathered.
  virtual void OnWatermark(Incarnation, PartitionId, Sequence) {}
  virtual void OnPushVoided(Incarnation, PartitionId, Sequence, Clock) {}  // rule M3: never counted
  virtual void OnPullServed(Incarnation, TableId, Clock /*use*/, Clock /*minimum*/) {}
  virtual void OnClockClosed(Clock) {}
};

}  // namespace tarn::server
