#include "worker/train/stepper.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <system_error>
#include <utility>

#include "core/log.h"
#include "core/thread_time.h"
#include "kernels/subnormals.h"
#include "kernels/visible_gpus.h"
#include "worker/train/local_arrays.h"

namespace tarn::worker {
namespace {

FinishedStep::Counted CountedBy(const QualityTally& quality) { return {quality.sums().loss_sum, quality.sums().rows}; }

FinishedStep::Counted Since(const FinishedStep::Counted& before, const QualityTally& quality) {
  const FinishedStep::Counted now = CountedBy(quality);
  return {now.loss_sum - before.loss_sum, now.rows - before.rows};
}

// The memory of a batch, without activations, grows with its rows and with the hot rows.
Error WithAdvice(Error error, const Batch& batch) {
  if (error.code == ErrorCode::kIo)
    error.message +=
        fmt::format("; it is for a batch of {} rows: reduce train.batch_rows or train.hot_rows", batch.rows);
  return error;
}

// Whether a plan that the host has made has an occurrence for each key of the batch and, where needed, the bias.
bool Fits(const Plan& plan, RowsNeeded rows, std::size_t keys) {
  if (rows == RowsNeeded::kAll || plan.placed != nullptr) return true;
  return plan.index.size() == keys + (rows == RowsNeeded::kBatchKeysAndBias ? 1 : 0);
}

}  // namespace

std::optional<int> GpuFor(const TrainSection& train, std::uint32_t rank, int visible) {
  const std::optional<int> named = GpuOf(train);
  if (train.device != "gpu" || visible == 0) return named;
  return static_cast<int>(rank % static_cast<std::uint32_t>(visible));
}

// Does not start the CUDA driver for train.device = "cpu".
std::optional<int> GpuFor(const TrainSection& train, std::uint32_t rank) {
  return GpuFor(train, rank, train.device == "cpu" ? 0 : kernels::VisibleGpus());
}

std::size_t PartRows(const TrainSection& train, bool on_gpu, std::size_t batch_rows) {
  if (train.accumulate == 1 && !on_gpu) return batch_rows;
  return (std::size_t{train.batch_rows} + train.accumulate - 1) / train.accumulate;
}

std::string AdviceFor(const TrainSection& train, std::size_t fitting) {
  const std::string recompute = train.recompute ? "" : ", or train.recompute = true";
  if (fitting == 0 || train.accumulate == train.batch_rows)  // parts of one row
    return "not even one row fits: a smaller model or another GPU is needed" + recompute;
  const std::size_t parts =
      std::max<std::size_t>((train.batch_rows + fitting - 1) / fitting, std::size_t{train.accumulate} + 1);
  return fmt::format("about {} rows would fit: train.accumulate = {}{}", fitting,
                     std::min<std::size_t>(parts, train.batch_rows), recompute);
}

Expected<std::unique_ptr<Stepper>> Stepper::Make(const Job& job, Model* model, const StepperOptions& options) {
  std::unique_ptr<kernels::Stream> stream;
  if (const auto gpu = GpuFor(job.train, options.rank)) {
    auto made = kernels::Stream::Make(*gpu);
    if (!made)
      return Fail(made.error().code, fmt::format("train.device = \"{}\": {}; train.device = \"cpu\" needs no GPU",
                                                 job.train.device, made.error().message));
    stream = std::move(*made);
    LogInfo("computing on GPU {}, {}", *gpu, stream->device_name());
  } else if (job.train.precision == Precision::kTf32 || job.train.precision == Precision::kFp16) {
    LogWarning("train.precision = \"{}\" is a format of GPUs: this worker computes in fp32", Name(job.train.precision));
  }
  std::unique_ptr<Stepper> stepper(new Stepper(job, model, options, std::move(stream)));
  TARN_RETURN_IF_ERROR(stepper->MakeArrays(job, options));
  return stepper;
}

Stepper::Stepper(const Job& job, Model* model, const StepperOptions& options, std::unique_ptr<kernels::Stream> stream)
    : train_(job.train),
      local_(job.local.method != LocalMethod::kNone),
      model_(model),
      done_(options.done),
      long_step_seconds_(options.long_step_seconds),
      stream_(std::move(stream)),
      compute_(stream_.get()),
      loss_scale_(stream_ != nullptr ? job.train.precision : Precision::kFp32) {
  UseGraphs(true);
}

Status Stepper::MakeArrays(const Job& job, const StepperOptions& options) {
  if (options.make_arrays) {
    for (std::size_t i = 0; i < options.steps; ++i) arrays_.push_back(options.make_arrays(*model_));
    loss_scale_ = LossScale(job.train.precision);
    return {};
  }
#if TARN_HAS_CUDA
  if (stream_ != nullptr) {
    auto made =
        MakeDeviceArrays(*model_, stream_.get(), &compute_,
                         {.steps = kStepsOnGpu, .algorithms_file = options.algorithms_file, .done = options.done});
    if (!made) return std::unexpected(std::move(made).error());
    arrays_ = std::move(*made);
    return {};
  }
#endif
  arrays_.push_back(local_ ? MakeLocalArrays(job.local, *model_) : MakeHostArrays(*model_));
  return {};
}

void Stepper::UseGraphs(bool use) {
  graphs_.reset();
  if (use && stream_ != nullptr) graphs_ = std::make_unique<StepGraphs>(stream_.get());
}

Expected<std::vector<Buffer>> Stepper::Run(const Batch& batch, std::span<const Plan* const> plans,
                                           std::span<const Buffer> values, bool train, QualityTally* quality,
                                           std::span<const float* const> placed) {
  TARN_RETURN_IF_ERROR(Start(batch, plans, values, train, quality, placed));
  auto result = Finish();
  if (!result) return std::unexpected(std::move(result).error());
  return std::move(result->gradients);
}

Status Stepper::Start(const Batch& batch, std::span<const Plan* const> plans, std::span<const Buffer> values,
                      bool train, QualityTally* quality, std::span<const float* const> placed) {
  TARN_CHECK(steps_.size() < arrays_.size(), "a step is finished first");
  for (std::size_t t = 0; t < plans.size(); ++t)
    TARN_CHECK(Fits(*plans[t], model_->tables()[t].rows, batch.keys.size()), "a plan is of the batch's keys");
  Step& step = steps_.emplace_back(Step{.arrays = FreeArrays(),
                                        .source = {&batch, plans, values, placed, train},
                                        .unit = loss_scale_.value(),
                                        .quality = quality});
  if (IsLong(batch.rows) && ComputeOnThread(&step)) return {};
  Status computed = ComputeStep(&step);
  if (!computed) steps_.pop_back();
  return computed;
}

bool Stepper::IsLong(std::size_t rows) const {
  if (stream_ != nullptr || arrays_.size() > 1 || long_step_seconds_ == StepperOptions::kNeverLong) return false;
  return !seconds_a_row_ || *seconds_a_row_ * static_cast<double>(rows) > long_step_seconds_;
}

// Computes the step on a separate thread, which calls done_ after the result is available. False: no thread could be
// started.
bool Stepper::ComputeOnThread(Step* step) {
  std::promise<Status> promise;
  step->on_thread = promise.get_future();
  try {
    step->thread = std::jthread([this, step, computed = std::move(promise)]() mutable {
      try {
        computed.set_value(ComputeStep(step));
      } catch (...) {
        computed.set_exception(std::current_exception());
      }
      if (done_) done_();
    });
  } catch (const std::system_error&) {
    step->on_thread = {};
    return false;
  }
  return true;
}

// Computes the whole step on the CPU, or submits it to the GPU.
Status Stepper::ComputeStep(Step* step) {
  const kernels::SubnormalsAreZero fast;
  const double cpu_before = ThreadCpuSeconds();
  const auto begin = std::chrono::steady_clock::now();
  const StepSource& source = step->source;
  if (Status brought = step->arrays->Bring(source); !brought)
    return std::unexpected(WithAdvice(std::move(brought).error(), *source.batch));
  // May merge the memory into one allocation, so it precedes StepGraphs, which identifies a step by its memory.
  compute_.memory().Reset();
  const std::vector<StepInput> parts = PartsOf(*step->arrays, *source.batch, source.train);
  const auto compute = [&] { return RunParts(parts, step->arrays, step->quality); };
  const FinishedStep::Counted before = CountedBy(*step->quality);
  const StepOutcome outcome = graphs_ != nullptr ? graphs_->Run(parts, compute) : compute();
  step->counted = Since(before, *step->quality);
  step->activation_bytes = outcome.activation_bytes;
  if (outcome.rows_without_room != 0) return std::unexpected(NoRoom(outcome.rows_without_room));
  TARN_RETURN_IF_ERROR(
      step->arrays->Return({step->unit, static_cast<float>(train_.clip_global_norm), loss_scale_.on()}));
  step->cpu_seconds = ThreadCpuSeconds() - cpu_before;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  if (source.batch->rows != 0) seconds_a_row_ = seconds.count() / static_cast<double>(source.batch->rows);
  return {};
}

bool Stepper::Done() const {
  if (steps_.empty()) return false;
  const Step& step = steps_.front();
  if (!step.on_thread.valid()) return step.arrays->Done();
  return step.on_thread.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

Expected<FinishedStep> Stepper::Finish() {
  TARN_CHECK(!steps_.empty(), "a step is started first");
  Step& oldest = steps_.front();
  const bool on_thread = oldest.on_thread.valid();
  Status computed;
  if (on_thread) computed = oldest.on_thread.get();
  const Step step = std::move(oldest);
  steps_.pop_front();
  if (!computed) return std::unexpected(std::move(computed).error());
  activation_bytes_ = step.activation_bytes;

  const kernels::SubnormalsAreZero fast;
  const double cpu_before = ThreadCpuSeconds();
  auto gradients = step.arrays->Finish();
  if (!gradients) return std::unexpected(std::move(gradients).error());
  FinishedStep finished{.gradients = {}, .counted = {}, .cpu_seconds = step.cpu_seconds, .on_thread = on_thread};
  if (step.source.train && !loss_scale_.Settle(gradients->finite, step.unit)) {
    LogInfo("gradients overflow fp16: this batch is skipped; the loss scale is now {}", loss_scale_.value());
    return finished;
  }
  const FinishedStep::Counted before = CountedBy(*step.quality);
  step.arrays->Tally(step.quality);
  const FinishedStep::Counted now = Since(before, *step.quality);
  finished.counted = {step.counted.loss_sum + now.loss_sum, step.counted.rows + now.rows};
  finished.gradients = std::move(gradients->values);
  finished.cpu_seconds += ThreadCpuSeconds() - cpu_before;
  return finished;
}

// Uses the first free set: with one step at a time always the same buffers, so that StepGraphs recognizes the step.
StepArrays* Stepper::FreeArrays() const {
  const auto is_free = [&](const auto& set) {
    return std::ranges::find(steps_, set.get(), &Step::arrays) == steps_.end();
  };
  return std::ranges::find_if(arrays_, is_free)->get();
}

std::vector<StepInput> Stepper::PartsOf(const StepArrays& arrays, const Batch& batch, bool train) const {
  const std::size_t rows = local_ && train ? train_.batch_rows : PartRows(train_, stream_ != nullptr, batch.rows);
  const float scale = 1.0f / static_cast<float>(train_.batch_rows) * loss_scale_.value();
  std::vector<StepInput> parts;
  for (std::size_t begin = 0; begin < batch.rows; begin += rows) {
    const BatchView part = arrays.batch().Slice(begin, std::min(rows, batch.rows - begin), batch.offsets[begin]);
    parts.push_back({part, arrays.views(), scale, train});
  }
  return parts;
}

// StepGraphs may record the operations that this submits and repeat them without calling this, so its results on the
// host must not vary.
StepOutcome Stepper::RunParts(std::span<const StepInput> parts, StepArrays* arrays, QualityTally* quality) {
  StepOutcome outcome;
  std::size_t begin = 0;
  for (const StepInput& part : parts) {
    compute_.memory().Reset();
    arrays->Select(part.batch);
    const Predictions predictions = model_->Step(compute_, part);
    outcome.activation_bytes = std::max(outcome.activation_bytes, compute_.memory().peak_bytes());
    if (compute_.memory().failed()) {
      outcome.rows_without_room = part.batch.rows;
      break;
    }
    arrays->Keep(predictions, begin, part.batch.rows, quality);
    begin += part.batch.rows;
  }
  return outcome;
}

// Estimates how many rows would fit: activations are proportional to rows.
Error Stepper::NoRoom(std::size_t rows) {
  const std::string why = compute_.memory().failure();
  const std::size_t needed = compute_.memory().peak_bytes();
  (void)stream_->Wait();
  const std::size_t available = compute_.memory().held_bytes() + stream_->free_bytes();
  const std::size_t fitting = rows * (available >> 10) / std::max<std::size_t>(needed >> 10, 1);
  return {ErrorCode::kIo, fmt::format("{}; the activations of {} rows need {} MiB, of which {} are available; {}", why,
                                      rows, needed >> 20, available >> 20, AdviceFor(train_, fitting))};
}

}  // namespace tarn::worker
