// A step's arrays where the model computes: a batch and the rows that it needs, brought there from pulled values, and
// its predictions and gradients, brought back. One for this process's memory, one for a GPU's.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/quality.h"
#include "kernels/stream.h"
#include "worker/client/plan.h"
#include "worker/models/model.h"

namespace tarn::worker {

// What a step starts from, as of Stepper::Start; it lives until the gradients are back.
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
  bool checked = false;  // whether they are finite is asked for
};

// One thread at a time. In the order of a step: Bring, then for each part of the batch Select, the model's step and
// Keep, then Return, later Finish, and Tally if the batch counts. Where others compute, nothing but Finish waits.
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

  // The step is over once its gradients have come back under this rule.
  virtual Status Return(const GradientRule& rule) = 0;
  // Whether it is: Finish does not wait.
  virtual bool Done() { return true; }
  struct Gradients {
    std::vector<Buffer> values;  // in the plans' order; none if not training
    bool finite = true;          // where it is asked for
  };
  // Waits until it is.
  virtual Expected<Gradients> Finish() = 0;
  // Adds the predictions that were kept to `quality`, unless Keep has.
  virtual void Tally(QualityTally*) {}

 protected:
  BatchView batch_;
  std::vector<TableView> views_;
};

std::unique_ptr<StepArrays> MakeHostArrays(const Model& model);

struct DeviceArraysOptions {
  std::size_t steps = 1;        // that may be under way at a time
  std::string algorithms_file;  // kernels/gemm_algorithms.h; those that are not in it are added; empty: none
  std::function<void()> done;   // a step may be over; called by another thread; may be empty
};

// A set of arrays for each of the steps, to be used in turns. A batch goes there, and gradients come back, over pinned
// memory on a stream of the set's own: while the step before computes, and while the one behind does. `compute` and its
// stream outlive them. Errors are the GPU's. In builds with CUDA alone.
Expected<std::vector<std::unique_ptr<StepArrays>>> MakeDeviceArrays(const Model& model, kernels::Stream* stream,
                                                                    Compute* compute, DeviceArraysOptions options);

}  // namespace tarn::worker
