#include "scheduler/progress/progress.h"

namespace tarn::scheduler {

Scores ScoresOf(const Quality& quality) {
  return {.rows = quality.rows,
          .log_loss = quality.LogLoss(),
          .auc = quality.Auc(),
          .accuracy = quality.Accuracy(),
          .normalized_entropy = quality.NormalizedEntropy()};
}

}  // namespace tarn::scheduler
