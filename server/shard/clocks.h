// The clocks of a shard: stores the last tick of each worker and the aggregated pushes that wait for their clock, and
// closes clocks (rules C2, A2, M3). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/message.h"
#include "core/view.h"
#include "server/clock/clock_buckets.h"
#include "server/clock/cohort.h"
#include "server/clock/table_policies.h"
#include "server/shard/shard_observer.h"
#include "server/store/store.h"

namespace tarn::server {

class Clocks {
 public:
  // All arguments outlive this object.
  Clocks(const TablePolicies* policies, Store* rows, ShardObserver* observer)
      : policies_(policies), rows_(rows), observer_(observer) {}

  const Cohort& cohort() const { return cohort_; }
  const ClockBuckets& buckets() const { return buckets_; }
  Clock minimum() const { return cohort_.minimum(); }

  // Adopts the members of a view. Discards gathered pushes (rule M3): of a worker that has ended, those for clocks from
  // its end on; of a worker that the view no longer contains, those for clocks from the minimum clock on.
  Cohort::Changes Adopt(const std::vector<WorkerEntry>& workers);
  // Restores the state from a log.
  void Restore(std::map<Incarnation, Cohort::Member> members, Clock minimum) {
    cohort_.Restore(std::move(members), minimum);
  }
  // Adopts the order of a view. If it orders a cut at clock E, the open clock of tables with backup workers (rule C8)
  // passes E only together with the minimum clock, until NoteCut or a view without the order.
  void SetOrder(const CheckpointOrder& order);
  // Notes that the cut of this order was made.
  void NoteCut(CheckpointId order);
  // Records the tick of a live worker that arrived at `now`; 0: at an unknown time.
  void Tick(Incarnation worker, const tarn::Tick& tick, TimeUs now = 0) { cohort_.Tick(worker, tick, now); }
  // Records a push that was applied immediately.
  void NotePushed(Incarnation worker, Clock clock) { cohort_.NotePushed(worker, clock); }

  // Stores one section of an aggregated push until `clock` closes.
  void Gather(Clock clock, Contribution contribution) { buckets_.Add(clock, std::move(contribution)); }
  // After a push was gathered: closes the table's part of the clock if the table's policy allows it. Errors are those
  // of the tier, here and below.
  Status CloseGathered(TableId table, Clock clock);
  // Closes, in order, every clock that may close, and advances the rows' clock to the largest open clock of any table.
  // CloseBelow closes only clocks below `limit`, which is at most the minimum clock, and advances the rows' clock to
  // `limit`.
  Status CloseReady();
  Status CloseBelow(Clock limit);

 private:
  Status CloseUpTo(Clock limit);
  Status Close(Clock clock, std::vector<Contribution> contributions);
  Status CloseTable(Clock clock, std::span<Contribution> contributions);
  Status CloseWith(Clock clock, std::span<const Contribution> chosen, std::uint32_t divisor);
  void Discard(Incarnation worker, Clock from);
  void Void(const Contribution& contribution, Clock clock);

  const TablePolicies* policies_;
  Store* rows_;
  ShardObserver* observer_;
  Cohort cohort_;
  CheckpointId cut_order_;  // the newest that was cut
  ClockBuckets buckets_;
  BucketCloser closer_;
};

}  // namespace tarn::server
