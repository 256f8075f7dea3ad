// The lines of metrics.jsonl about workers, one per second and live worker, made from heartbeats.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "scheduler/progress/progress.h"

namespace tarn::scheduler {

class WorkerLines {
 public:
  // {"time": ..., "role": "worker", "rank": 0, "clock": ..., "samples": ..., "samples_per_second": ..., "loss": ...,
  // "staleness_mean": ..., "waiting_share": ..., ...} without line ends. Rates, loss, staleness_mean and
  // waiting_share are of the time since the worker's previous line and absent from its first. loss and staleness_mean
  // are also absent if there was no loss or no pull in that time. `time_seconds`: since 1970.
  std::vector<std::string> Make(const Progress& progress, double time_seconds);

 private:
  // Cumulative figures of a worker, at time_seconds.
  struct Figures {
    double time_seconds = 0;
    double samples = 0, loss_sum = 0, loss_rows = 0, waiting_seconds = 0, pulls = 0, staleness_sum = 0;
  };
  static Figures FiguresOf(const WorkerProgress& worker, double time_seconds);

  std::map<Incarnation, Figures> last_;  // for live workers
};

}  // namespace tarn::scheduler
