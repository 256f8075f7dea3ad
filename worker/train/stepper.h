// One step of a model over pulled rows: from the values of a batch's pulls to the gradients of its pushes. No I/O and
// no protocol, so that the training loop and a single process without servers run the same arithmetic.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/buffer.h"
#include "core/quality.h"
#include "worker/models/model.h"
#include "worker/plan.h"
#include "worker/train/loss_scale.h"
#include "worker/train/step_arrays.h"
#include "worker/train/step_graphs.h"

namespace tarn::worker {

struct StepperOptions {
  std::uint32_t rank = 0;       // of the worker: several of a machine take its GPUs in turns
  std::string algorithms_file;  // what is known of matrix products on GPUs, from run to run; empty: nothing
  // For tests: other arrays in place of the host's. The loss is then scaled as train.precision says.
  std::function<std::unique_ptr<StepArrays>(const Model&)> make_arrays;
};

// The GPU that a worker computes on, of `visible` ones: "gpu:N" is the N-th, "gpu" that of its rank, counted around.
// Nothing: the CPU.
std::optional<int> GpuFor(const TrainSection& train, std::uint32_t rank, int visible);
// Of those that this process may use.
std::optional<int> GpuFor(const TrainSection& train, std::uint32_t rank);

// Into how many rows a batch is cut. What training was fitted to by `accumulate` holds for the larger batches of an
// evaluation too, and on a GPU always, since its memory may not take more.
std::size_t PartRows(const TrainSection& train, bool on_gpu, std::size_t batch_rows);

// What to do where the activations of no more than `fitting` rows fit into the GPU's memory.
std::string AdviceFor(const TrainSection& train, std::size_t fitting);

// Computes where train.device says, in the parts that train.accumulate asks for. Not thread-safe: it keeps working
// memory, and on a GPU it belongs to the thread that made it.
class Stepper {
 public:
  // Of the job it takes [train]. kUnavailable, kUnsupported: there is no such GPU; the message says why, and what to
  // do.
  static Expected<std::unique_ptr<Stepper>> Make(const Job& job, Model* model, const StepperOptions& options = {});

  // values[t]: what table t's plan pulled (unique rows x dim, in the plan's order). placed[t], if it is not null, is
  // the same where the model computes, there until this returns, and values[t] is not used (row_place.h). Returns
  // gradients in the same shape and order if `train`, else nothing; nothing either for a batch to be passed over, whose
  // gradients do not fit fp16 (LossScale) and whose rows `quality` does not count. plans[t] must outlive the call. kIo:
  // the GPU's memory does not suffice; the message says for what and which part of the batch would fit. kInternal: the
  // GPU failed.
  Expected<std::vector<Buffer>> Run(const Batch& batch, std::span<const Plan* const> plans,
                                    std::span<const Buffer> values, bool train, QualityTally* quality,
                                    std::span<const float* const> placed = {});

  // What it computes on; null: the CPU.
  kernels::Stream* stream() const { return stream_.get(); }

  // The most memory for activations that a part of the last batch took.
  std::size_t activation_bytes() const { return activation_bytes_; }

  // Whether steps on a GPU are recorded when they come again (step_graphs.h); they are, unless it is told not to, to
  // find an error or to compare. The bits are the same.
  void UseGraphs(bool use);
  // Steps that were launched as graphs.
  std::uint64_t graphs_launched() const { return graphs_ == nullptr ? 0 : graphs_->launched(); }

 private:
  Stepper(const Job& job, Model* model, std::unique_ptr<kernels::Stream> stream);
  std::vector<StepInput> PartsOf(const Batch& batch, bool train) const;
  StepOutcome RunParts(std::span<const StepInput> parts, QualityTally* quality);
  Error NoRoom(std::size_t rows);

  TrainSection train_;
  Model* model_;
  std::unique_ptr<kernels::Stream> stream_;  // null: the CPU
  Compute compute_;
  LossScale loss_scale_;
  std::unique_ptr<StepArrays> arrays_;
  std::unique_ptr<StepGraphs> graphs_;  // null: steps are not recorded
  std::size_t activation_bytes_ = 0;
};

}  // namespace tarn::worker
