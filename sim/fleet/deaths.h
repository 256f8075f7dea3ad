// What ends alone: a server, the scheduler, a log whose sync fails. The job ends with a reason; with a log it then
// continues in its folder, and nothing acknowledged is lost.
#pragma once

#include <cstdint>

#include "sim/fleet/context.h"
#include "sim/fleet/outages.h"
#include "sim/fleet/run_result.h"
#include "sim/fleet/shard_logs.h"

namespace tarn::sim {

class Deaths {
 public:
  // All outlive it.
  Deaths(FleetContext& context, ShardLogs* logs, Outages* outages)
      : context_(context), logs_(logs), outages_(outages) {}

  void Plan();
  // The job has ended, with an excuse for it if it failed. Whether it continues where it was: its logs have all that
  // was acknowledged.
  bool ContinuesInPlace(bool excused);
  void OnAllEnded() { server_died_ = false; }

  bool over() const { return over_; }                // the scheduler died, and nothing continues
  bool server_died() const { return server_died_; }  // since all processes ended
  bool died_early() const { return died_early_; }    // the server: before the last checkpoint was ordered
  void AddTo(RunResult* result) const;

 private:
  void EndServer();
  void EndShard(std::uint32_t shard, bool power);
  void CheckServerIsMissed(std::uint32_t server);
  void StartServerAgain(std::uint32_t server);
  void EndScheduler();
  // Whether this start of the job runs, and is the one with this scheduler.
  bool StillRuns(ProcessId scheduler) const;

  FleetContext& context_;
  ShardLogs* logs_;
  Outages* outages_;
  bool over_ = false, server_died_ = false, died_early_ = false;
  std::uint64_t deaths_ = 0, workers_died_ = 0;  // workers: as a scheduler that is gone saw it
};

}  // namespace tarn::sim
