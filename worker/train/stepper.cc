#include "worker/train/stepper.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/log.h"

namespace tarn::worker {
namespace {

std::size_t PartRows(const TrainSection& train) {
  return (std::size_t{train.batch_rows} + train.accumulate - 1) / train.accumulate;
}

}  // namespace

Expected<std::unique_ptr<Stepper>> Stepper::Make(const Job& job, Model* model,
                                                 [[maybe_unused]] const std::string& algorithms_file) {
  std::unique_ptr<kernels::Stream> stream;
  if (const auto gpu = GpuOf(job.train)) {
    auto made = kernels::Stream::Make(*gpu);
    if (!made)
      return Fail(made.error().code, fmt::format("train.device = \"{}\": {}; train.device = \"cpu\" needs none",
                                                 job.train.device, made.error().message));
    stream = std::move(*made);
    LogInfo("computing on {}", stream->device_name());
  } else if (job.train.precision == Precision::kTf32 || job.train.precision == Precision::kFp16) {
    LogWarning("train.precision = \"{}\" is a format of GPUs: this worker computes in fp32", Name(job.train.precision));
  }
  std::unique_ptr<Stepper> stepper(new Stepper(job, model, std::move(stream)));
#if TARN_HAS_CUDA
  if (stepper->stream_ != nullptr)
    stepper->arrays_ = MakeDeviceArrays(*model, stepper->stream_.get(), &stepper->compute_, algorithms_file);
#endif
  return stepper;
}

Stepper::Stepper(const Job& job, Model* model, std::unique_ptr<kernels::Stream> stream)
    : train_(job.train),
      model_(model),
      stream_(std::move(stream)),
      compute_(stream_.get()),
      loss_scale_(stream_ != nullptr ? job.train.precision : Precision::kFp32),
      arrays_(MakeHostArrays(*model)) {
  UseGraphs(true);
}

void Stepper::UseGraphs(bool use) {
  graphs_.reset();
  if (use && stream_ != nullptr) graphs_ = std::make_unique<StepGraphs>(stream_.get());
}

Expected<std::vector<Buffer>> Stepper::Run(const Batch& batch, std::span<const Plan* const> plans,
                                           std::span<const Buffer> values, bool train, QualityTally* quality) {
  TARN_RETURN_IF_ERROR(arrays_->Bring({&batch, plans, values, train}));
  compute_.memory().Reset();  // joins what came in pieces: its address is known before the step is
  const std::vector<StepInput> parts = PartsOf(batch, train);
  const auto step = [&] { return RunParts(parts, quality); };
  const StepOutcome outcome = graphs_ != nullptr ? graphs_->Run(parts, step) : step();
  activation_bytes_ = outcome.activation_bytes;
  if (outcome.rows_without_room != 0) return std::unexpected(NoRoom(outcome.rows_without_room));
  const float unit = loss_scale_.value();
  auto gradients = arrays_->Finish({unit, static_cast<float>(train_.clip_global_norm)}, quality);
  if (!gradients) return std::unexpected(std::move(gradients).error());
  if (!train || loss_scale_.Settle(gradients->finite)) return std::move(gradients->values);
  LogInfo("gradients do not fit fp16: this batch is passed over, and the loss is scaled by {}", loss_scale_.value());
  return std::vector<Buffer>{};
}

std::vector<StepInput> Stepper::PartsOf(const Batch& batch, bool train) const {
  const std::size_t rows = train_.accumulate == 1 ? batch.rows : PartRows(train_);
  const float scale = 1.0f / static_cast<float>(train_.batch_rows) * loss_scale_.value();
  std::vector<StepInput> parts;
  for (std::size_t begin = 0; begin < batch.rows; begin += rows) {
    const BatchView part = arrays_->batch().Slice(begin, std::min(rows, batch.rows - begin), batch.offsets[begin]);
    parts.push_back({part, arrays_->views(), scale, train});
  }
  return parts;
}

// StepGraphs may record what this gives to the GPU and do it again without calling this: what it leaves on the host is
// the same then.
StepOutcome Stepper::RunParts(std::span<const StepInput> parts, QualityTally* quality) {
  StepOutcome outcome;
  std::size_t begin = 0;
  for (const StepInput& part : parts) {
    compute_.memory().Reset();
    arrays_->Select(part.batch);
    const Predictions predictions = model_->Step(compute_, part);
    outcome.activation_bytes = std::max(outcome.activation_bytes, compute_.memory().peak_bytes());
    if (compute_.memory().failed()) {
      outcome.rows_without_room = part.batch.rows;
      break;
    }
    arrays_->Keep(predictions, begin, part.batch.rows, quality);
    begin += part.batch.rows;
  }
  return outcome;
}

// Activations grow with the rows.
Error Stepper::NoRoom(std::size_t rows) {
  const std::string why = compute_.memory().failure();
  const std::size_t needed = compute_.memory().peak_bytes();
  (void)stream_->Wait();
  const std::size_t there = compute_.memory().held_bytes() + stream_->free_bytes();
  const std::size_t fitting = rows * (there >> 10) / std::max<std::size_t>(needed >> 10, 1);
  std::string advice = "not even one row fits: a smaller model or another GPU is needed";
  if (fitting != 0)
    advice = fmt::format("about {} rows would fit: train.accumulate = {}, or train.recompute = true", fitting,
                         std::max<std::size_t>((train_.batch_rows + fitting - 1) / fitting, train_.accumulate + 1));
  return {ErrorCode::kIo, fmt::format("{}; activations of {} rows take {} MiB of which {} are there; {}", why, rows,
                                      needed >> 20, there >> 20, advice)};
}

}  // namespace tarn::worker
