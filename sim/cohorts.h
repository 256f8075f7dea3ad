// What the views of a simulated run have said of its workers, and what is known of them besides: who is in which
// cohort, who is dead, which clock each is in. Questions that fail return what is wrong, or nothing.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "core/message.h"
#include "core/view.h"

namespace tarn::sim {

class Cohorts {
 public:
  // A scheduler starts that knows of no view.
  void BeginAnew();
  // The newest view: every incarnation's entry is kept, and versions, epochs and verdicts must not go back.
  std::string OnView(const View& view);
  // The clock that a worker is in; while none is known, it is its clock of joining.
  void OnClock(Incarnation worker, Clock clock) { clocks_[worker] = clock; }
  void OnGone(Incarnation worker) { gone_.insert(worker); }

  bool nobody_died() const { return gone_.empty(); }
  bool IsGone(Incarnation worker) const { return gone_.contains(worker); }
  bool HasEnded(Incarnation worker) const;
  // By the verdicts known: how many workers a clock waits for, and whether it waits for this one.
  double SizeAt(Clock clock) const;
  bool Has(Incarnation worker, Clock clock) const;

  // A shard has answered a pull for use at this clock on a table with this bound: no live worker may be further back.
  std::string CheckGroundTruth(Clock use, std::uint64_t bound) const;

 private:
  std::map<Incarnation, WorkerEntry> entries_;
  std::set<Incarnation> gone_;
  std::map<Incarnation, Clock> clocks_;
  View view_;
  ViewVersion last_version_;
  Epoch last_epoch_;
};

}  // namespace tarn::sim
