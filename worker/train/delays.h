// Draws the durations that [delays] of the job gives to a worker's batches. A function of the job's seed and the
// worker's rank: restarted workers and simulated ones draw the same. One thread.
#pragma once

#include <cstdint>

#include "core/hash.h"
#include "core/job/job.h"
#include "core/types.h"

namespace tarn::worker {

class BatchDelays {
 public:
  BatchDelays(const Job& job, std::uint32_t rank);

  // Draws the minimum duration of the next training batches, which have `rows` rows in all, including pauses; 0: no
  // minimum.
  TimeUs Next(std::uint64_t rows);

 private:
  DelaysSection delays_;
  SplitMix rng_;
  std::uint64_t batch_rows_;  // of this worker
  double factor_;             // multiplies the duration of a batch, but not its pauses
};

}  // namespace tarn::worker
