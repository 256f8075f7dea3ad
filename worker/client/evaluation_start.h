// Decides when cached rows must be dropped for evaluation (rule H5 of docs/protocol.md). Pure; one thread.
#pragma once

#include <optional>
#include <utility>

#include "core/types.h"

namespace tarn::worker {

class EvaluationStart {
 public:
  // Call it before the pulls of every batch, for use at clock `use`. True: an evaluation begins, and all cached rows
  // must be dropped first. Two evaluations without training in between are recognized by their different clocks.
  bool Before(bool train, Clock use) {
    const std::optional<Clock> last = std::exchange(at_, train ? std::nullopt : std::optional(use));
    return !train && last != use;
  }

 private:
  std::optional<Clock> at_;  // clock of the previous batch if it was evaluation
};

}  // namespace tarn::worker
