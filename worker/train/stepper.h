// One step of a model over pulled rows: from the values of a batch's pulls to the gradients of its pushes. No I/O and
// no protocol, so that the training loop and a single process without servers run the same arithmetic.
#pragma once

#include <span>
#include <vector>

#include "core/buffer.h"
#include "core/quality.h"
#include "worker/models/model.h"
#include "worker/plan.h"

namespace tarn::worker {

// Not thread-safe: it keeps working memory.
class Stepper {
 public:
  // clip_global_norm 0: off. scale: of the summed gradient (1 / nominal batch rows, rule A3).
  Stepper(Model* model, float scale, double clip_global_norm);

  // values[t]: what table t's plan pulled (unique rows x dim, in the plan's order). Returns gradients in the same
  // shape and order if `train`, else nothing. plans[t] must outlive the call.
  std::vector<Buffer> Run(const Batch& batch, std::span<const Plan* const> plans, std::span<const Buffer> values,
                          bool train, QualityTally* quality);

 private:
  void MakeViews(std::span<const Plan* const> plans, std::span<const Buffer> values, bool train);

  Model* model_;
  float scale_;
  double clip_global_norm_;
  std::vector<TableView> views_;
  std::vector<std::vector<float>> rows_, gradients_;  // of dense tables, in natural order
  std::vector<Buffer> out_;
};

}  // namespace tarn::worker
