// A step's arrays where the model computes: a batch and the rows that it needs, brought there from pulled values, and
// its predictions and gradients, brought back. One for this process's memory, one for a GPU's.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/quality.h"
#include "kernels/stream.h"
#include "worker/models/model.h"
#include "worker/plan.h"

namespace tarn::worker {

// What a step starts from, as of Stepper::Run; it lives until the gradients are back.
struct StepSource {
  // The rows of table t where the model computes; null: they are in values[t].
  const float* PlacedAt(std::size_t t) const { return placed.empty() ? nullptr : placed[t]; }

  const Batch* batch = nullptr;
  std::span<const Plan* const> plans;
  std::span<const Buffer> values;
  std::span<const float* const> placed;
  bool train = true;
};

// What is done to the gradients of a step on their way back: they are divided by `unit`, the scale of the loss, then
// brought to a norm of at most norm_max over all tables; 0: off.
struct GradientRule {
  float unit = 1;
  float norm_max = 0;
};

// One thread at a time. In the order of a step: Bring, then for each part of the batch Select, the model's step and
// Keep, then Finish, and Tally if the batch counts.
class StepArrays {
 public:
  virtual ~StepArrays() = default;

  virtual Status Bring(const StepSource& source) = 0;
  const BatchView& batch() const { return batch_; }
  std::span<const TableView> views() const { return views_; }
  // Makes the views those of this part of the batch.
  virtual void Select(const BatchView&) {}
  // The predictions for its rows, from row `begin` of the batch on. Where every batch counts they go to `quality` at
  // once.
  virtual void Keep(const Predictions& predictions, std::size_t begin, std::size_t rows, QualityTally* quality) = 0;

  struct Gradients {
    std::vector<Buffer> values;  // in the plans' order; none if not training
    bool finite = true;          // known with a unit other than 1 alone
  };
  // Waits until all is done.
  virtual Expected<Gradients> Finish(const GradientRule& rule) = 0;
  // Adds the predictions that were kept to `quality`, unless Keep has.
  virtual void Tally(QualityTally*) {}

 protected:
  BatchView batch_;
  std::vector<TableView> views_;
};

std::unique_ptr<StepArrays> MakeHostArrays(const Model& model);

// Over pinned memory; matrix products by the algorithms of the file, measured and added where they are not in it
// (kernels/gemm_algorithms.h; empty: none). `compute` and its stream outlive it. In builds with CUDA alone.
std::unique_ptr<StepArrays> MakeDeviceArrays(const Model& model, kernels::Stream* stream, Compute* compute,
                                             const std::string& algorithms_file);

}  // namespace tarn::worker
