// Events within the steps of a shard, for checkers and metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/message.h"
#include "core/types.h"
#include "server/clock/contribution.h"

namespace tarn::server {

// All methods do nothing by default. Called synchronously within a step.
class ShardObserver {
 public:
  virtual ~ShardObserver() = default;
  virtual void OnPushApplied(Incarnation, PartitionId, Sequence, Clock) {}  // applied or gathered, once
  // Restored from a log: sequences up to this one were applied or gathered.
  virtual void OnWatermark(Incarnation, PartitionId, Sequence) {}
  // Restored from a log: the clocks below the minimum clock are closed. The inputs since then are repeated next.
  virtual void OnRestored(Clock /*minimum*/, std::span<const PartitionId> /*owned*/) {}
  virtual void OnPushVoided(Incarnation, PartitionId, Sequence, Clock) {}  // does not count (rules A2, C8, M3)
  // The messages of workers that had an effect, in the order of their effects: a push with a new section, before its
  // rows change; a pull that was answered (the answer may be sent already); a tick that advanced its worker.
  virtual void OnPushTaken(WorkerRank, const Push&, std::size_t /*first new section, over all tables*/) {}
  virtual void OnPullServed(WorkerRank, Incarnation, const Pull&, Clock /*open*/) {}
  virtual void OnTick(WorkerRank, const Tick&) {}
  virtual void OnClockClosed(Clock) {}
  // A table's part of a clock is about to be closed with these contributions, at least one. The sum of their gradients
  // is divided by `divisor`.
  virtual void OnTableClosed(TableId, Clock, std::uint32_t /*divisor*/, std::span<const Contribution>) {}
};

}  // namespace tarn::server
