// One step of a model over pulled rows: from the values of a batch's pulls to the gradients of its pushes. No I/O and
// no protocol, so that the training loop and a single process without servers use the same arithmetic.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <limits>
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
  std::uint32_t rank = 0;       // of the worker: selects one of the machine's GPUs
  std::string algorithms_file;  // file with the algorithms of matrix products on GPUs; empty: none
  std::function<void()> done;   // called on another thread when a started step may be complete; may be empty
  // On the CPU a step that is expected to take longer than this runs on a separate thread; so does the first step,
  // whose time is unknown.
  double long_step_seconds = 0.5;
  static constexpr double kNeverLong = std::numeric_limits<double>::infinity();  // every step on the caller's thread
  // For tests: replaces the host's arrays, for the given number of concurrent steps. The loss is then scaled as
  // train.precision requires.
  std::function<std::unique_ptr<StepArrays>(const Model&)> make_arrays;
  std::size_t steps = 1;
};

struct FinishedStep {
  // By table: of each unique row of its plan, in the plan's order. Empty if not training, and for a skipped batch,
  // whose gradients overflow fp16 (LossScale).
  std::vector<Buffer> gradients;
  // Of the counted rows; those of a skipped batch are not counted.
  struct Counted {
    double loss_sum = 0;
    std::uint64_t rows = 0;
  };
  Counted counted;
  double cpu_seconds = 0;  // of all threads that worked on the step
  bool on_thread = false;  // a separate thread computed it
};

// The GPU of a worker among `visible` ones: "gpu:N" is GPU N, "gpu" is GPU rank % visible. nullopt: the CPU.
std::optional<int> GpuFor(const TrainSection& train, std::uint32_t rank, int visible);
// The same among the GPUs that this process may use.
std::optional<int> GpuFor(const TrainSection& train, std::uint32_t rank);

// Rows of each part of a batch. The size that `accumulate` gives in training also applies to the larger batches of
// evaluation; on a GPU even with accumulate = 1, because its memory may not suffice for more.
std::size_t PartRows(const TrainSection& train, bool on_gpu, std::size_t batch_rows);

// Advice for the error message if the activations of at most `fitting` rows fit into the GPU's memory.
std::string AdviceFor(const TrainSection& train, std::size_t fitting);

// Computes on train.device, in train.accumulate parts. Not thread-safe: it reuses working memory, and on a GPU it
// belongs to the thread that made it.
//
//   stepper->Start(batch, plans, values, true, &quality);   // on a GPU: also while the previous step is computed
//   if (stepper->Done()) auto result = stepper->Finish();   // of the oldest step
//
// A GPU has two steps at a time: data of one is copied while the other one is computed. A CPU has one. Start computes
// it before it returns, unless the step is expected to take long: then a separate thread computes it, so that the
// caller can continue its periodic work.
class Stepper {
 public:
  static constexpr std::size_t kStepsOnGpu = 2;

  // Uses [train] of the job. kUnavailable or kUnsupported: the GPU cannot be used; the message has the reason, and
  // what to do.
  static Expected<std::unique_ptr<Stepper>> Make(const Job& job, Model* model, const StepperOptions& options = {});

  // values[t]: what table t's plan pulled (unique rows x dim, in the plan's order). placed[t], if it is not null, is
  // the same data on the model's device, and values[t] is not used (row_place.h). All arguments must stay unchanged
  // until Finish, which also completes `quality`. kIo: not enough GPU memory; the message names the purpose and a part
  // of the batch that would fit. After an error the stepper cannot be used.
  Status Start(const Batch& batch, std::span<const Plan* const> plans, std::span<const Buffer> values, bool train,
               QualityTally* quality, std::span<const float* const> placed = {});
  std::size_t steps_max() const { return arrays_.size(); }
  // Number of steps that were started and are not finished.
  std::size_t steps() const { return steps_.size(); }
  // Whether the oldest step is complete, so that Finish does not wait.
  bool Done() const;
  // Waits until the oldest step is complete, and returns its result. kInternal: the GPU failed. If a separate
  // thread computed the step, errors are those of Start.
  Expected<FinishedStep> Finish();

  // Start and Finish; returns the gradients.
  Expected<std::vector<Buffer>> Run(const Batch& batch, std::span<const Plan* const> plans,
                                    std::span<const Buffer> values, bool train, QualityTally* quality,
                                    std::span<const float* const> placed = {});

  // The stream of the GPU; null: the CPU.
  kernels::Stream* stream() const { return stream_.get(); }

  // Peak memory for activations over the parts of the last finished batch.
  std::size_t activation_bytes() const { return activation_bytes_; }

  // Whether repeated steps on a GPU are recorded (step_graphs.h). Default: true; disable it to locate an error or to
  // compare. The bits are the same.
  void UseGraphs(bool use);
  // Number of steps that were launched as graphs.
  std::uint64_t graphs_launched() const { return graphs_ == nullptr ? 0 : graphs_->launched(); }

 private:
  // A step that was started and is not finished.
  struct Step {
    StepArrays* arrays;
    StepSource source;
    float unit;  // scale of the loss, by which the gradients are divided
    QualityTally* quality;
    FinishedStep::Counted counted;  // so far
    std::size_t activation_bytes = 0;
    double cpu_seconds = 0;
    std::future<Status> on_thread;  // result of the separate thread that computes it; invalid without one
    std::jthread thread;
  };

  Stepper(const Job& job, Model* model, const StepperOptions& options, std::unique_ptr<kernels::Stream> stream);
  Status MakeArrays(const Job& job, const StepperOptions& options);
  StepArrays* FreeArrays() const;
  bool IsLong(std::size_t rows) const;
  Status ComputeStep(Step* step);
  bool ComputeOnThread(Step* step);
  std::vector<StepInput> PartsOf(const StepArrays& arrays, const Batch& batch, bool train) const;
  StepOutcome RunParts(std::span<const StepInput> parts, StepArrays* arrays, QualityTally* quality);
  Error NoRoom(std::size_t rows);

  TrainSection train_;
  bool local_;  // takes local steps
  Model* model_;
  std::function<void()> done_;
  double long_step_seconds_;
  std::unique_ptr<kernels::Stream> stream_;  // null: the CPU
  Compute compute_;
  LossScale loss_scale_;
  std::vector<std::unique_ptr<StepArrays>> arrays_;  // one set per concurrent step
  std::unique_ptr<StepGraphs> graphs_;               // null: steps are not recorded
  std::size_t activation_bytes_ = 0;
  std::optional<double> seconds_a_row_;  // of the last step
  std::deque<Step> steps_;               // oldest first; destroyed first, which waits for them
};

}  // namespace tarn::worker
