// Writes to the log which nodes are silent or delay others, and detects that no worker is left. Silence counts only
// while the scheduler itself was running.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/job/job.h"
#include "core/listening.h"
#include "core/types.h"
#include "scheduler/membership/membership.h"
#include "scheduler/progress/notes.h"

namespace tarn::scheduler {

class FleetWatch {
 public:
  // How many leases a fleet stays without any worker.
  static constexpr int kWorkerlessLeasesMax = 20;

  // Membership and notes outlive it.
  FleetWatch(const FleetSection& fleet, const Membership* membership, Notes* notes);

  void Start(TimeUs now);
  // The scheduler runs; at each of its timers.
  void Note(TimeUs now) { listening_.Note(now, lease_us_ / 2); }
  TimeUs listening_since() const { return listening_.since(); }

  // left: the worker sent Leave, rather than dying.
  void OnWorkerEnded(bool left) { deserted_ = !left; }
  // Whether the last worker died, and no other has come for kWorkerlessLeasesMax leases. Called at each timer;
  // `may_be_empty`: the run ends, and workers are no longer needed.
  bool Deserted(TimeUs now, bool may_be_empty);

  // Whom the fleet waits for, or empty. `cut`: the clock that workers must tick to for a checkpoint.
  std::string WaitText(TimeUs now, std::optional<Clock> cut) const;
  // Writes that text to the log, every kWaitNotePeriodUs.
  void WarnOfWaits(TimeUs now, std::optional<Clock> cut);

 private:
  FleetSection fleet_;
  TimeUs lease_us_;
  const Membership* membership_;
  Notes* notes_;
  Listening listening_;
  bool deserted_ = false;  // the last worker to end died
  TimeUs workers_seen_ = 0, next_waits_ = 0;
};

}  // namespace tarn::scheduler
