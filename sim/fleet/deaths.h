// Failures of single processes: the death of a server or of the scheduler, a failed sync of a log. The job ends with a
// reason; with a log it then continues in its directory, and nothing acknowledged is lost.
#pragma once

#include <cstdint>

#include "sim/fleet/context.h"
#include "sim/fleet/outages.h"
#include "sim/fleet/run_result.h"
#include "sim/fleet/shard_logs.h"

namespace tarn::sim {

class Deaths {
 public:
  // All arguments outlive this object.
  Deaths(FleetContext& context, ShardLogs* logs, Outages* outages)
      : context_(context), logs_(logs), outages_(outages) {}

  void Plan();
  // Must be called when the job has ended; `excused`: a failure was expected. Returns whether it continues in its
  // directory, from its logs.
  bool ContinuesInPlace(bool excused);
  void OnAllEnded() { server_died_ = false; }

  bool over() const { return over_; }                // the scheduler died and the run does not continue
  bool server_died() const { return server_died_; }  // since the last end of all processes
  bool died_early() const { return died_early_; }    // a server died before the last checkpoint was ordered
  void AddTo(RunResult* result) const;

 private:
  void EndServer();
  void EndShard(std::uint32_t shard, bool power);
  void CheckServerIsMissed(std::uint32_t server);
  void StartServerAgain(std::uint32_t server);
  void EndScheduler();
  // Whether the job is running with this scheduler.
  bool StillRuns(ProcessId scheduler) const;

  FleetContext& context_;
  ShardLogs* logs_;
  Outages* outages_;
  bool over_ = false, server_died_ = false, died_early_ = false;
  std::uint64_t deaths_ = 0, workers_died_ = 0;  // workers_died_: as counted by the scheduler that was killed
};

}  // namespace tarn::sim
