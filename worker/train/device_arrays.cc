#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/limits.h"
#include "core/log.h"
#include "kernels/device_gemm.h"
#include "kernels/elementwise.h"
#include "kernels/gemm_algorithms.h"
#include "kernels/rows.h"
#include "kernels/segments.h"
#include "worker/train/device_batch.h"
#include "worker/train/device_memory.h"
#include "worker/train/step_arrays.h"

namespace tarn::worker {
namespace {

using kernels::DeviceBuffer;
using kernels::PinnedBuffer;
using kernels::Stream;

// Capacity for n keys or rows and some more, at most what their 31-bit indices allow.
std::size_t CapacityFor(std::size_t n) { return std::min(WithRoom(n), limits::kPlanKeysMax); }

// A stream's algorithms for matrix products, stored between runs.
class KnownAlgorithms {
 public:
  KnownAlgorithms(Stream* stream, std::string file)
      : stream_(*stream), algorithms_(kernels::MakeGemmAlgorithms(*stream)), file_(std::move(file)) {
    if (file_.empty()) return;
    if (Status s = algorithms_.Load(file_); !s && s.error().code != ErrorCode::kNotFound)
      LogWarning("{}; the algorithms of matrix products are measured again", s.error().message);
    kernels::UseGemmAlgorithms(stream_, &algorithms_);
  }
  ~KnownAlgorithms() {
    (void)stream_.Wait();
    kernels::UseGemmAlgorithms(stream_, nullptr);
  }
  KnownAlgorithms(const KnownAlgorithms&) = delete;
  KnownAlgorithms& operator=(const KnownAlgorithms&) = delete;

  void Save() {
    if (file_.empty() || !algorithms_.changed()) return;
    const Status saved = algorithms_.Save(file_);
    if (saved || saved.error().code == ErrorCode::kUnavailable) return;  // another process is writing it: try later
    LogWarning("{}; the algorithms of matrix products are measured again in the next run", saved.error().message);
    file_.clear();
  }

 private:
  Stream& stream_;
  kernels::GemmAlgorithms algorithms_;
  std::string file_;  // empty: not stored
};

// State shared by the sets of arrays.
struct Shared {
  Shared(Stream* stream, DeviceArraysOptions options)
      : algorithms(stream, std::move(options.algorithms_file)), done(std::move(options.done)) {}
  KnownAlgorithms algorithms;
  std::function<void()> done;
};

// Dense tables are in key order on the GPU: BringRows converts them from the plan's order, and Take converts their
// gradients back.
//
// A set uses two streams: the model's stream computes; the set's own, `copy_stream_`, copies the batch to the GPU
// and the gradients back. WaitFor orders the writes of one stream before the reads of the other. Memory belongs to the
// stream that writes it first, and is reassigned or freed only between steps of the set, when both streams have
// finished with it.
class DeviceArrays : public StepArrays {
 public:
  DeviceArrays(const Model& model, Stream* stream, Compute* compute, std::unique_ptr<Stream> copy_stream,
               std::shared_ptr<Shared> shared)
      : model_(model),
        shared_(std::move(shared)),
        stream_(*stream),
        copy_stream_(std::move(copy_stream)),
        compute_(*compute),
        tables_(model.tables().size()) {
    views_.resize(tables_.size());
  }

  ~DeviceArrays() override {
    (void)stream_.Wait();
    (void)copy_stream_->Wait();
  }

  Status Bring(const StepSource& source) override {
    source_ = source;
    TARN_RETURN_IF_ERROR(on_device_.Bring(*copy_stream_, *source.batch));
    batch_ = on_device_.view();
    TARN_RETURN_IF_ERROR(
        Fit(stream_, source.batch->rows * (sizeof(double) + sizeof(std::uint32_t)), "a batch's predictions", &scores_));
    for (std::size_t t = 0; t < tables_.size(); ++t) TARN_RETURN_IF_ERROR(BringTable(t));
    // Rounded up, so that a batch with slightly more unique rows can reuse the recorded step (StepGraphs).
    for (TableView& view : views_) view.unique = std::min(std::bit_ceil(view.unique), limits::kPlanKeysMax);
    if (source.train) TARN_RETURN_IF_ERROR(FitSegments());
    stream_.WaitFor(*copy_stream_);
    return {};
  }

  void Select(const BatchView& part) override {
    if (!source_.train) return;
    const std::size_t occurrences = OccurrencesOf(part);
    for (std::size_t t = 0; t < tables_.size(); ++t)
      if (views_[t].segments != nullptr)
        kernels::GroupByRow(stream_, occurrences, views_[t].index + part.first, views_[t].unique, *sort_,
                            *views_[t].segments);
  }

  void Keep(const Predictions& predictions, std::size_t begin, std::size_t rows, QualityTally*) override {
    if (compute_.memory().failed()) return;
    of_classes_ = predictions.logits == nullptr;
    if (!of_classes_) {
      kernels::CopyToHost(stream_, predictions.logits, rows * sizeof(float), scores_.as<float>() + begin);
    } else {
      kernels::CopyToHost(stream_, predictions.losses, rows * sizeof(double), Losses() + begin);
      kernels::CopyToHost(stream_, predictions.correct, rows * sizeof(std::uint32_t), Correct() + begin);
    }
  }

  Status Return(const GradientRule& rule) override {
    measured_ = source_.train && (rule.checked || rule.norm_max > 0);
    if (measured_) TARN_RETURN_IF_ERROR(ApplyRule(rule));
    copy_stream_->WaitFor(stream_);
    if (measured_) norm_.ToHost(*copy_stream_);
    if (source_.train)
      for (Table& table : tables_) table.gradients.ToHost(*copy_stream_);
    if (shared_->done) copy_stream_->NotifyWhenDone(&shared_->done);
    return {};
  }

  bool Done() override { return copy_stream_->Done(); }

  Expected<Gradients> Finish() override {
    TARN_RETURN_IF_ERROR(copy_stream_->Wait());
    shared_->algorithms.Save();
    if (!source_.train) return Gradients{};
    Gradients gradients{.finite = !measured_ || std::isfinite(*norm_.host.as<double>())};
    for (std::size_t t = 0; t < tables_.size(); ++t) gradients.values.push_back(Take(t));
    return gradients;
  }

  void Tally(QualityTally* quality) override {
    if (source_.batch->rows == 0) return;
    const Predictions kept = of_classes_ ? Predictions{.losses = Losses(), .correct = Correct()}
                                         : Predictions{.logits = scores_.as<float>()};
    worker::Tally(kept, source_.batch->labels, quality);
  }

 private:
  struct Table {
    Mirror rows, gradients, index;
    std::unique_ptr<kernels::Segments> segments;
    kernels::Segments::Capacity capacity;
  };

  bool IsDense(std::size_t t) const { return model_.tables()[t].rows == RowsNeeded::kAll; }
  const std::string& NameOf(std::size_t t) const { return model_.tables()[t].spec.name; }
  double* Losses() { return scores_.as<double>(); }
  std::uint32_t* Correct() { return reinterpret_cast<std::uint32_t*>(Losses() + source_.batch->rows); }

  std::size_t OccurrencesOf(const BatchView& part) const {
    const std::size_t row = static_cast<std::size_t>(part.offsets - batch_.offsets);
    return source_.batch->offsets[row + part.rows] - source_.batch->offsets[row];
  }

  Status BringTable(std::size_t t) {
    const Plan& plan = *source_.plans[t];
    Table& table = tables_[t];
    const std::size_t floats = plan.keys.size() * plan.dim;
    views_[t] = {.rows = source_.PlacedAt(t), .unique = plan.keys.size()};
    if (views_[t].rows == nullptr) TARN_RETURN_IF_ERROR(BringRows(t));
    if (!IsDense(t)) {
      TARN_RETURN_IF_ERROR(BringIndex(plan, &table.index));
      views_[t].index = table.index.device.as<std::uint32_t>();
    }
    if (!source_.train) return {};
    TARN_RETURN_IF_ERROR(table.gradients.Resize(stream_, floats * sizeof(float), "gradients of table " + NameOf(t)));
    views_[t].gradients = table.gradients.device.as<float>();
    kernels::Fill(stream_, floats, 0.0f, views_[t].gradients);
    return {};
  }

  // The index of a plan made by the GPU is copied too, because steps are only reused if the index has the same address.
  Status BringIndex(const Plan& plan, Mirror* index) {
    constexpr std::string_view kWhat = "a batch's index";
    if (plan.placed == nullptr) return index->Bring(*copy_stream_, std::span<const std::uint32_t>(plan.index), kWhat);
    const std::size_t bytes = plan.placed->occurrences * sizeof(std::uint32_t);
    TARN_RETURN_IF_ERROR(Fit(*copy_stream_, bytes, kWhat, &index->device));
    kernels::CopyOnDevice(*copy_stream_, plan.placed->index, bytes, index->device.data());
    return {};
  }

  Status BringRows(std::size_t t) {
    const Plan& plan = *source_.plans[t];
    Mirror& rows = tables_[t].rows;
    const std::span<const float> pulled = source_.values[t].as<float>();
    if (IsDense(t)) {
      TARN_RETURN_IF_ERROR(rows.Resize(*copy_stream_, pulled.size_bytes(), "rows of table " + NameOf(t)));
      kernels::GatherByIndex(plan.dim, plan.keys.size(), pulled.data(), plan.index.data(), rows.host.as<float>());
      rows.ToDevice(*copy_stream_);
    } else {
      TARN_RETURN_IF_ERROR(rows.Bring(*copy_stream_, pulled, "rows of table " + NameOf(t)));
    }
    views_[t].rows = rows.device.as<float>();
    return {};
  }

  Status FitSegments() {
    const std::size_t occurrences = source_.batch->keys.size();
    if (sort_ == nullptr || occurrences > sorted_max_) {
      sort_.reset();  // its memory may be needed for the larger one
      auto sort = kernels::SortScratch::Make(stream_, sorted_max_ = CapacityFor(occurrences));
      if (!sort) sort = kernels::SortScratch::Make(stream_, sorted_max_ = occurrences);
      if (!sort) return std::unexpected(std::move(sort).error());
      sort_ = std::move(*sort);
    }
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      Table& table = tables_[t];
      if (IsDense(t)) continue;
      if (table.segments == nullptr || occurrences > table.capacity.occurrences ||
          views_[t].unique > table.capacity.rows) {
        table.segments.reset();
        const std::size_t rows = views_[t].unique;
        table.capacity = {CapacityFor(occurrences), CapacityFor(rows), source_.plans[t]->dim};
        auto segments = kernels::Segments::Make(stream_, table.capacity);
        if (!segments) {
          table.capacity = {occurrences, rows, source_.plans[t]->dim};
          segments = kernels::Segments::Make(stream_, table.capacity);
        }
        if (!segments) return std::unexpected(std::move(segments).error());
        table.segments = std::move(*segments);
      }
      views_[t].segments = table.segments.get();
    }
    return {};
  }

  // Unscales and clips the gradients, and computes the norm that Finish checks. Does not wait for the GPU.
  Status ApplyRule(const GradientRule& rule) {
    constexpr std::size_t kPartsBytes = kernels::kNormParts * sizeof(double);
    TARN_RETURN_IF_ERROR(norm_.Resize(stream_, kPartsBytes + sizeof(float), "the norm of gradients"));
    auto* const parts = norm_.device.as<double>();
    auto* const factor = reinterpret_cast<float*>(parts + kernels::kNormParts);
    kernels::Fill(stream_, kPartsBytes / sizeof(float), 0.0f, norm_.device.as<float>());
    for (std::size_t t = 0; t < tables_.size(); ++t)
      kernels::AddSquaredNorm(stream_, FloatsOf(t), views_[t].gradients, parts);
    kernels::ClipScale(stream_, parts, rule.unit, rule.norm_max, factor);
    for (std::size_t t = 0; t < tables_.size(); ++t) kernels::Scale(stream_, FloatsOf(t), factor, views_[t].gradients);
    return {};
  }
  std::size_t FloatsOf(std::size_t t) const { return tables_[t].gradients.bytes / sizeof(float); }

  Buffer Take(std::size_t t) {
    const Plan& plan = *source_.plans[t];
    Mirror& gradients = tables_[t].gradients;
    if (!IsDense(t)) return Buffer::Copy(gradients.host.data(), gradients.bytes);
    Buffer out = Buffer::Allocate(gradients.bytes);
    kernels::ScatterByIndex(plan.dim, plan.keys.size(), gradients.host.as<float>(), plan.index.data(),
                            out.as_mutable<float>().data());
    return out;
  }

  const Model& model_;
  std::shared_ptr<Shared> shared_;
  Stream& stream_;
  std::unique_ptr<Stream> copy_stream_;  // of this set, for copies in both directions
  Compute& compute_;
  StepSource source_;
  bool measured_ = false;
  DeviceBatch on_device_;
  Mirror norm_;
  PinnedBuffer scores_;  // per row the logit, or the loss; after all losses, whether the predicted class was right
  bool of_classes_ = false;
  std::vector<Table> tables_;
  std::unique_ptr<kernels::SortScratch> sort_;
  std::size_t sorted_max_ = 0;
};

}  // namespace

Expected<std::vector<std::unique_ptr<StepArrays>>> MakeDeviceArrays(const Model& model, Stream* stream,
                                                                    Compute* compute, DeviceArraysOptions options) {
  std::vector<std::unique_ptr<StepArrays>> sets;
  const std::size_t steps = options.steps;
  const auto shared = std::make_shared<Shared>(stream, std::move(options));
  for (std::size_t i = 0; i < steps; ++i) {
    auto copy_stream = Stream::Make(stream->device());
    if (!copy_stream) return std::unexpected(std::move(copy_stream).error());
    sets.push_back(std::make_unique<DeviceArrays>(model, stream, compute, std::move(*copy_stream), shared));
  }
  return sets;
}

}  // namespace tarn::worker
