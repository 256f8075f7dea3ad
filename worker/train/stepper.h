// One step of a model over pulled rows: from the values of a batch's pulls to the gradients of its pushes. No I/O and
// no protocol, so that the training loop and a single process without servers run the same arithmetic.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "core/buffer.h"
#include "core/quality.h"
#include "worker/client/plan.h"
#include "worker/models/model.h"
#include "worker/train/loss_scale.h"
#include "worker/train/step_arrays.h"
#include "worker/train/step_graphs.h"

namespace tarn::worker {

struct StepperOptions {
  std::uint32_t rank = 0;       // of the worker: several of a machine take its GPUs in turns
  std::string algorithms_file;  // what is known of matrix products on GPUs, from run to run; empty: nothing
  std::function<void()> done;   // a step that was started may be over; called by another thread; may be empty
  // On the CPU a step that would take longer is computed by a thread of its own; the first one too, as nobody knows.
  double long_step_seconds = 0.5;
  // For tests: other arrays in place of the host's, for so many steps at a time. The loss is then scaled as
  // train.precision says.
  std::function<std::unique_ptr<StepArrays>(const Model&)> make_arrays;
  std::size_t steps = 1;
};

struct FinishedStep {
  // Of the plans, unique rows x dim, in their order. None if not training, nor of a batch to be passed over, whose
  // gradients do not fit fp16 (LossScale).
  std::vector<Buffer> gradients;
  // Of the rows that count: those of a batch that is passed over do not.
  struct Counted {
    double loss_sum = 0;
    std::uint64_t rows = 0;
  };
  Counted counted;
  double cpu_seconds = 0;  // of whatever thread
  bool beside = false;     // it was computed by a thread of its own
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
//
//   stepper->Start(batch, plans, values, true, &quality);   // while the step before is computed, if it is on a GPU
//   if (stepper->Done()) auto result = stepper->Finish();   // of the first one
//
// A GPU has two steps at a time: one is brought there, or its gradients back, while the other one is computed. A CPU
// has one, which is over when Start returns, unless it is a long one: the caller is not kept from what it does every
// second.
class Stepper {
 public:
  static constexpr std::size_t kStepsOnGpu = 2;

  // Of the job it takes [train]. kUnavailable, kUnsupported: there is no such GPU; the message says why, and what to
  // do.
  static Expected<std::unique_ptr<Stepper>> Make(const Job& job, Model* model, const StepperOptions& options = {});

  // values[t]: what table t's plan pulled (unique rows x dim, in the plan's order). placed[t], if it is not null, is
  // the same where the model computes, and values[t] is not used (row_place.h). All of it stays as it is until Finish,
  // by which `quality` has counted the rows that count. kIo: the GPU's memory does not suffice; the message says for
  // what and which part of the batch would fit. After an error a stepper is of no use any more.
  Status Start(const Batch& batch, std::span<const Plan* const> plans, std::span<const Buffer> values, bool train,
               QualityTally* quality, std::span<const float* const> placed = {});
  std::size_t steps_max() const { return arrays_.size(); }
  // That were started and are not finished.
  std::size_t steps() const { return steps_.size(); }
  // Whether Finish would not wait: the oldest step is over.
  bool Done() const;
  // Of the oldest step, once it is over. kInternal: the GPU failed.
  Expected<FinishedStep> Finish();

  // Start and Finish: the gradients.
  Expected<std::vector<Buffer>> Run(const Batch& batch, std::span<const Plan* const> plans,
                                    std::span<const Buffer> values, bool train, QualityTally* quality,
                                    std::span<const float* const> placed = {});

  // What it computes on; null: the CPU.
  kernels::Stream* stream() const { return stream_.get(); }

  // The most memory for activations that a part of the batch that was finished last took.
  std::size_t activation_bytes() const { return activation_bytes_; }

  // Whether steps on a GPU are recorded when they come again (step_graphs.h); they are, unless it is told not to, to
  // find an error or to compare. The bits are the same.
  void UseGraphs(bool use);
  // Steps that were launched as graphs.
  std::uint64_t graphs_launched() const { return graphs_ == nullptr ? 0 : graphs_->launched(); }

 private:
  // One that was started.
  struct Step {
    StepArrays* arrays;
    StepSource source;
    float unit;  // of the gradients: the scale of the loss
    QualityTally* quality;
    FinishedStep::Counted counted;  // so far
    std::size_t activation_bytes = 0;
    double cpu_seconds = 0;
    std::future<Status> beside;  // of the thread that computes it, if it is not the caller's
    std::jthread thread;
  };

  Stepper(const Job& job, Model* model, const StepperOptions& options, std::unique_ptr<kernels::Stream> stream);
  Status MakeArrays(const Job& job, const StepperOptions& options);
  StepArrays* FreeArrays() const;
  bool IsLong(std::size_t rows) const;
  Status ComputeStep(Step* step);
  bool ComputeBeside(Step* step);
  std::vector<StepInput> PartsOf(const StepArrays& arrays, const Batch& batch, bool train) const;
  StepOutcome RunParts(std::span<const StepInput> parts, StepArrays* arrays, QualityTally* quality);
  Error NoRoom(std::size_t rows);

  TrainSection train_;
  Model* model_;
  std::function<void()> done_;
  double long_step_seconds_;
  std::unique_ptr<kernels::Stream> stream_;  // null: the CPU
  Compute compute_;
  LossScale loss_scale_;
  std::vector<std::unique_ptr<StepArrays>> arrays_;  // a set for each step at a time
  std::unique_ptr<StepGraphs> graphs_;               // null: steps are not recorded
  std::size_t activation_bytes_ = 0;
  std::optional<double> seconds_a_row_;  // of the last step
  std::deque<Step> steps_;               // the oldest first; goes first, and waits
};

}  // namespace tarn::worker
