// The arrays of a step on the model's device: copies the batch and its rows there, and predictions and gradients back.
// Implementations: host memory (MakeHostArrays), a GPU (MakeDeviceArrays), and local steps (local_arrays.h).
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

// The input of a step, as in Stepper::Start; it must stay valid until the gradients are copied back.
struct StepSource {
  // The rows of table t on the model's device; null: they are in values[t].
  const float* PlacedAt(std::size_t t) const { return placed.empty() ? nullptr : placed[t]; }

  const Batch* batch = nullptr;
  std::span<const Plan* const> plans;
  std::span<const Buffer> values;
  std::span<const float* const> placed;
  bool train = true;
};

// Processing of gradients before they are copied back: divided by `unit`, the scale of the loss, then scaled to a norm
// of at most norm_max over all tables; 0: off.
struct GradientRule {
  float unit = 1;
  float norm_max = 0;
  bool checked = false;  // whether to check that they are finite; on a GPU only
};

// One thread at a time. In the order of a step: Bring, then for each part of the batch Select, the model's step and
// Keep, then Return, later Finish, and Tally if the batch counts. On a GPU only Finish blocks.
class StepArrays {
 public:
  virtual ~StepArrays() = default;

  virtual Status Bring(const StepSource& source) = 0;
  const BatchView& batch() const { return batch_; }
  std::span<const TableView> views() const { return views_; }
  // Prepares the views for this part of the batch.
  virtual void Select(const BatchView&) {}
  // Takes the predictions for the part's rows, which begin at row `begin` of the batch. On the CPU, where every batch
  // counts, adds them to `quality`; on a GPU stores them for Tally.
  virtual void Keep(const Predictions& predictions, std::size_t begin, std::size_t rows, QualityTally* quality) = 0;

  // Starts to process the gradients by this rule and to copy them back. The step is complete when this has ended
  // (Done).
  virtual Status Return(const GradientRule& rule) = 0;
  // Whether the step is complete, so that Finish does not block.
  virtual bool Done() { return true; }
  struct Gradients {
    std::vector<Buffer> values;  // in the plans' order; none if not training
    bool finite = true;          // whether all are finite, if that was checked
  };
  // Waits until the step is complete, and returns its gradients.
  virtual Expected<Gradients> Finish() = 0;
  // Adds the stored predictions to `quality`, unless Keep has done so.
  virtual void Tally(QualityTally*) {}

 protected:
  BatchView batch_;
  std::vector<TableView> views_;
};

std::unique_ptr<StepArrays> MakeHostArrays(const Model& model);

struct DeviceArraysOptions {
  std::size_t steps = 1;        // that may be in progress at a time
  std::string algorithms_file;  // read, and extended by new measurements (kernels/gemm_algorithms.h); empty: none
  std::function<void()> done;   // called on another thread when a step may be complete; may be empty
};

// Makes a set of arrays per step, to be used in turns. Each set copies its batch and gradients through pinned memory on
// its own stream, while other steps compute. `compute` and its stream outlive the sets. Errors are those of the GPU.
// Only in builds with CUDA.
Expected<std::vector<std::unique_ptr<StepArrays>>> MakeDeviceArrays(const Model& model, kernels::Stream* stream,
                                                                    Compute* compute, DeviceArraysOptions options);

}  // namespace tarn::worker
