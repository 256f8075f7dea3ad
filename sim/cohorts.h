// The workers of a simulated run according to its views and to the simulator: cohorts, deaths, and clocks. Checks
// return the error, or an empty string.
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
  // Forgets the versions and workers of earlier views, but not view(). Must be called when a scheduler starts without a
  // saved view, because versions then start again.
  void BeginAnew();
  // Adds the newest view and stores the entry of every incarnation. Versions and epochs must not decrease; verdicts and
  // join clocks must not change.
  std::string OnView(const View& view);
  const View& view() const { return view_; }  // the newest one
  // Sets the current clock of a worker; initially its join clock.
  void OnClock(Incarnation worker, Clock clock) { clocks_[worker] = clock; }
  // The process of a worker has ended.
  void OnGone(Incarnation worker) { gone_.insert(worker); }

  // Whether every worker of the run is live, by the views and by OnGone.
  bool nobody_died() const;
  bool IsGone(Incarnation worker) const { return gone_.contains(worker); }
  // Whether the worker has a verdict. True also if no view has contained it.
  bool HasEnded(Incarnation worker) const;
  // By the known verdicts: the number of workers that count for a clock, and whether this one does.
  double SizeAt(Clock clock) const;
  bool Has(Incarnation worker, Clock clock) const;

  // IsBeyond: whether the worker belongs to the cohort of the clock and has itself finished it. BeyondAt: the number of
  // such workers.
  bool IsBeyond(Incarnation worker, Clock clock) const;
  std::uint32_t BeyondAt(Clock clock) const;

  // Checks that a shard may answer a pull of clock `use` now: at most `backups` live workers may be more than `bound`
  // clocks behind `use`.
  std::string CheckGroundTruth(Clock use, std::uint64_t bound, std::uint32_t backups) const;

 private:
  std::map<Incarnation, WorkerEntry> entries_;
  std::set<Incarnation> gone_;
  std::map<Incarnation, Clock> clocks_;
  View view_;
  ViewVersion last_version_;
  Epoch last_epoch_;
};

}  // namespace tarn::sim
