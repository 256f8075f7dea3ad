#include "scheduler/progress/progress.h"

#include <optional>

namespace tarn::scheduler {

Scores ScoresOf(const Quality& quality) {
  return {.rows = quality.rows,
          .log_loss = quality.LogLoss(),
          .auc = quality.has_logits() ? std::optional(quality.Auc()) : std::nullopt,
          .accuracy = quality.Accuracy(),
          .normalized_entropy = quality.NormalizedEntropy()};
}

}  // namespace tarn::scheduler
