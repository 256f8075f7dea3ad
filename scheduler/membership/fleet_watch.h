// Logs which nodes are silent or delay others, and detects that no worker is left. Only time during which the scheduler
// itself was running counts as silence.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/job/job.h"
#include "core/listening.h"
#include "core/types.h"
#include "scheduler/membership/membership.h"
#include "scheduler/membership/waits.h"
#include "scheduler/progress/notes.h"

namespace tarn::scheduler {

class FleetWatch {
 public:
  // How long a fleet waits without any worker, in multiples of fleet.lease_seconds.
  static constexpr int kWorkerlessLeasesMax = 20;

  // Membership and notes outlive this object.
  FleetWatch(const FleetSection& fleet, const Membership* membership, Notes* notes);

  void Start(TimeUs now);
  // Must be called at each timer of the scheduler.
  void Note(TimeUs now) { listening_.Note(now, lease_us_ / 2); }
  TimeUs listening_since() const { return listening_.since(); }

  // `left`: the worker sent Leave instead of dying.
  void OnWorkerEnded(bool left) { last_ended_died_ = !left; }
  // Whether the last worker died and no other has joined for kWorkerlessLeasesMax * lease_seconds. Must be called at
  // each timer. `may_be_empty`: the run is ending, so workers are not needed.
  bool Deserted(TimeUs now, bool may_be_empty);

  // Text about the nodes that the fleet waits for, or empty. `cut`: what a checkpoint waits for.
  std::string WaitText(TimeUs now, const CutWaits& cut) const;
  // Logs that text as a warning, at most once per kWaitNotePeriodUs.
  void WarnOfWaits(TimeUs now, const CutWaits& cut);

 private:
  FleetSection fleet_;
  TimeUs lease_us_;
  const Membership* membership_;
  Notes* notes_;
  Listening listening_;
  bool last_ended_died_ = false;  // the last worker that ended did not send Leave
  TimeUs workers_seen_ = 0, next_waits_ = 0;
};

}  // namespace tarn::scheduler
