// When the rows that a worker keeps must go for evaluation (rule H5 of docs/protocol.md). Pure; one thread.
#pragma once

#include <optional>
#include <utility>

#include "core/types.h"

namespace tarn::worker {

class EvaluationStart {
 public:
  // Before the pulls of every batch, for use at clock `use`. True: an evaluation begins, so that all kept rows go
  // first. A worker that had nothing to train in between begins the next one at another clock.
  bool Before(bool train, Clock use) {
    const std::optional<Clock> last = std::exchange(at_, train ? std::nullopt : std::optional(use));
    return !train && last != use;
  }

 private:
  std::optional<Clock> at_;  // of the evaluation that the batch before was of
};

}  // namespace tarn::worker
