// Events within the steps of a shard, for checkers and metrics.
#pragma once

#include <cstddef>

#include "core/message.h"
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
  // The messages of workers that had an effect, in the order of their effects: a push with a new section, before its
  // rows change; a pull that was answered; a tick that advanced its worker.
  virtual void OnPushTaken(WorkerRank, const Push&, std::size_t /*first new section*/) {}
  virtual void OnPullServed(WorkerRank, Incarnation, const Pull&, Clock /*minimum*/) {}
  virtual void OnTick(WorkerRank, const Tick&) {}
  virtual void OnClockClosed(Clock) {}
};

}  // namespace tarn::server
