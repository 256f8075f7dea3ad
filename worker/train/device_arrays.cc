#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/log.h"
#include "kernels/device_gemm.h"
#include "kernels/elementwise.h"
#include "kernels/gemm_algorithms.h"
#include "kernels/rows.h"
#include "kernels/segments.h"
#include "worker/train/step_arrays.h"

namespace tarn::worker {
namespace {

using kernels::DeviceBuffer;
using kernels::PinnedBuffer;
using kernels::Stream;

// Batches differ a little in size: room for a quarter more spares most of the allocations.
std::size_t WithRoom(std::size_t n) { return n + n / 4; }

template <typename BufferType>
Status Fit(Stream& stream, std::size_t bytes, std::string_view what, BufferType* buffer) {
  if (buffer->size() >= bytes) return {};
  *buffer = BufferType();
  auto larger = BufferType::Allocate(stream, WithRoom(bytes), what);
  if (!larger) larger = BufferType::Allocate(stream, bytes, what);
  if (!larger) return std::unexpected(std::move(larger).error());
  *buffer = std::move(*larger);
  return {};
}

// An array of the GPU, and pinned memory on its way there or back.
struct Mirror {
  DeviceBuffer device;
  PinnedBuffer host;
  std::size_t bytes = 0;  // of what is there now

  Status Resize(Stream& stream, std::size_t size, std::string_view what) {
    bytes = size;
    TARN_RETURN_IF_ERROR(Fit(stream, size, what, &host));
    return Fit(stream, size, what, &device);
  }
  void ToDevice(Stream& stream) { kernels::CopyToDevice(stream, host.data(), bytes, device.data()); }
  void ToHost(Stream& stream) { kernels::CopyToHost(stream, device.data(), bytes, host.data()); }

  template <typename T>
  Status Bring(Stream& stream, std::span<const T> items, std::string_view what) {
    TARN_RETURN_IF_ERROR(Resize(stream, items.size_bytes(), what));
    if (!items.empty()) std::memcpy(host.data(), items.data(), items.size_bytes());
    ToDevice(stream);
    return {};
  }
};

// Dense tables lie in natural order, which the copy into pinned memory makes of the plan's and back.
class DeviceArrays : public StepArrays {
 public:
  DeviceArrays(const Model& model, Stream* stream, Compute* compute, const std::string& algorithms_file)
      : model_(model),
        stream_(*stream),
        compute_(*compute),
        algorithms_(kernels::MakeGemmAlgorithms(*stream)),
        algorithms_file_(algorithms_file),
        tables_(model.tables().size()) {
    views_.resize(tables_.size());
    if (algorithms_file_.empty()) return;
    if (Status s = algorithms_.Load(algorithms_file_); !s && s.error().code != ErrorCode::kNotFound)
      LogWarning("{}; the algorithms of matrix products are measured again", s.error().message);
    kernels::UseGemmAlgorithms(stream_, &algorithms_);
  }

  ~DeviceArrays() override {
    (void)stream_.Wait();
    kernels::UseGemmAlgorithms(stream_, nullptr);
  }

  Status Bring(const StepSource& source) override {
    source_ = source;
    TARN_RETURN_IF_ERROR(BringBatch());
    for (std::size_t t = 0; t < tables_.size(); ++t) TARN_RETURN_IF_ERROR(BringTable(t));
    // Of a batch that needs a few rows more the step is the same (StepGraphs).
    for (TableView& view : views_) view.unique = std::bit_ceil(view.unique);
    if (source.train) TARN_RETURN_IF_ERROR(FitSegments());
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

  Expected<Gradients> Finish(const GradientRule& rule) override {
    const bool measured = source_.train && (rule.unit != 1.0f || rule.norm_max > 0);
    if (measured) TARN_RETURN_IF_ERROR(Condition(rule));
    if (source_.train)
      for (Table& table : tables_) table.gradients.ToHost(stream_);
    TARN_RETURN_IF_ERROR(stream_.Wait());
    SaveAlgorithms();
    if (!source_.train) return Gradients{};
    Gradients gradients{.finite = !measured || std::isfinite(*norm_.host.as<double>())};
    for (std::size_t t = 0; t < tables_.size(); ++t) gradients.values.push_back(Return(t));
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
    kernels::Segments::Room room;
  };

  bool IsDense(std::size_t t) const { return model_.tables()[t].rows == RowsNeeded::kAll; }
  const std::string& NameOf(std::size_t t) const { return model_.tables()[t].spec.name; }
  double* Losses() { return scores_.as<double>(); }
  std::uint32_t* Correct() { return reinterpret_cast<std::uint32_t*>(Losses() + source_.batch->rows); }

  std::size_t OccurrencesOf(const BatchView& part) const {
    const std::size_t row = static_cast<std::size_t>(part.offsets - batch_.offsets);
    return source_.batch->offsets[row + part.rows] - source_.batch->offsets[row];
  }

  Status BringBatch() {
    const Batch& batch = *source_.batch;
    TARN_RETURN_IF_ERROR(labels_.Bring(stream_, std::span<const float>(batch.labels), "a batch's labels"));
    TARN_RETURN_IF_ERROR(dense_.Bring(stream_, std::span<const float>(batch.dense), "a batch's dense columns"));
    TARN_RETURN_IF_ERROR(offsets_.Bring(stream_, std::span<const std::uint32_t>(batch.offsets), "a batch's rows"));
    TARN_RETURN_IF_ERROR(weights_.Bring(stream_, std::span<const float>(batch.weights), "a batch's weights"));
    TARN_RETURN_IF_ERROR(
        Fit(stream_, batch.rows * (sizeof(double) + sizeof(std::uint32_t)), "a batch's predictions", &scores_));
    batch_ = BatchView::Of(batch);
    batch_.labels = labels_.device.as<float>();
    batch_.dense = dense_.device.as<float>();
    batch_.offsets = offsets_.device.as<std::uint32_t>();
    batch_.weights = batch.weights.empty() ? nullptr : weights_.device.as<float>();
    return {};
  }

  Status BringTable(std::size_t t) {
    const Plan& plan = *source_.plans[t];
    Table& table = tables_[t];
    const std::size_t floats = plan.keys.size() * plan.dim;
    views_[t] = {.rows = source_.PlacedAt(t), .unique = plan.keys.size()};
    if (views_[t].rows == nullptr) TARN_RETURN_IF_ERROR(BringRows(t));
    if (!IsDense(t)) {
      TARN_RETURN_IF_ERROR(table.index.Bring(stream_, std::span<const std::uint32_t>(plan.index), "a batch's index"));
      views_[t].index = table.index.device.as<std::uint32_t>();
    }
    if (!source_.train) return {};
    TARN_RETURN_IF_ERROR(table.gradients.Resize(stream_, floats * sizeof(float), "gradients of table " + NameOf(t)));
    views_[t].gradients = table.gradients.device.as<float>();
    kernels::Fill(stream_, floats, 0.0f, views_[t].gradients);
    return {};
  }

  Status BringRows(std::size_t t) {
    const Plan& plan = *source_.plans[t];
    Mirror& rows = tables_[t].rows;
    const std::span<const float> pulled = source_.values[t].as<float>();
    if (IsDense(t)) {
      TARN_RETURN_IF_ERROR(rows.Resize(stream_, pulled.size_bytes(), "rows of table " + NameOf(t)));
      kernels::GatherByIndex(plan.dim, plan.keys.size(), pulled.data(), plan.index.data(), rows.host.as<float>());
      rows.ToDevice(stream_);
    } else {
      TARN_RETURN_IF_ERROR(rows.Bring(stream_, pulled, "rows of table " + NameOf(t)));
    }
    views_[t].rows = rows.device.as<float>();
    return {};
  }

  Status FitSegments() {
    const std::size_t occurrences = source_.batch->keys.size();
    if (sort_ == nullptr || occurrences > sorted_max_) {
      sorted_max_ = WithRoom(occurrences);
      auto sort = kernels::SortScratch::Make(stream_, sorted_max_);
      if (!sort) return std::unexpected(std::move(sort).error());
      sort_ = std::move(*sort);
    }
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      Table& table = tables_[t];
      if (IsDense(t)) continue;
      if (table.segments == nullptr || occurrences > table.room.occurrences || views_[t].unique > table.room.rows) {
        table.room = {WithRoom(occurrences), WithRoom(views_[t].unique), source_.plans[t]->dim};
        auto segments = kernels::Segments::Make(stream_, table.room);
        if (!segments) return std::unexpected(std::move(segments).error());
        table.segments = std::move(*segments);
      }
      views_[t].segments = table.segments.get();
    }
    return {};
  }

  // The rule, without a word from the GPU in between.
  Status Condition(const GradientRule& rule) {
    constexpr std::size_t kPartsBytes = kernels::kNormParts * sizeof(double);
    TARN_RETURN_IF_ERROR(norm_.Resize(stream_, kPartsBytes + sizeof(float), "the norm of gradients"));
    auto* const parts = norm_.device.as<double>();
    auto* const factor = reinterpret_cast<float*>(parts + kernels::kNormParts);
    kernels::Fill(stream_, kPartsBytes / sizeof(float), 0.0f, norm_.device.as<float>());
    for (std::size_t t = 0; t < tables_.size(); ++t)
      kernels::AddSquaredNorm(stream_, FloatsOf(t), views_[t].gradients, parts);
    kernels::ClipScale(stream_, parts, rule.unit, rule.norm_max, factor);
    for (std::size_t t = 0; t < tables_.size(); ++t) kernels::Scale(stream_, FloatsOf(t), factor, views_[t].gradients);
    norm_.ToHost(stream_);
    return {};
  }
  std::size_t FloatsOf(std::size_t t) const { return tables_[t].gradients.bytes / sizeof(float); }

  Buffer Return(std::size_t t) {
    const Plan& plan = *source_.plans[t];
    Mirror& gradients = tables_[t].gradients;
    if (!IsDense(t)) return Buffer::Copy(gradients.host.data(), gradients.bytes);
    Buffer out = Buffer::Allocate(gradients.bytes);
    kernels::ScatterByIndex(plan.dim, plan.keys.size(), gradients.host.as<float>(), plan.index.data(),
                            out.as_mutable<float>().data());
    return out;
  }

  void SaveAlgorithms() {
    if (algorithms_file_.empty() || !algorithms_.changed()) return;
    if (Status s = algorithms_.Save(algorithms_file_); !s) {
      LogWarning("{}; the algorithms of matrix products are measured again in the next run", s.error().message);
      algorithms_file_.clear();
    }
  }

  const Model& model_;
  Stream& stream_;
  Compute& compute_;
  kernels::GemmAlgorithms algorithms_;
  std::string algorithms_file_;  // empty: not kept
  StepSource source_;
  Mirror labels_, dense_, offsets_, weights_, norm_;
  PinnedBuffer scores_;  // of each row: its logit, or its loss, and behind all losses whether the best class was right
  bool of_classes_ = false;
  std::vector<Table> tables_;
  std::unique_ptr<kernels::SortScratch> sort_;
  std::size_t sorted_max_ = 0;
};

}  // namespace

std::unique_ptr<StepArrays> MakeDeviceArrays(const Model& model, Stream* stream, Compute* compute,
                                             const std::string& algorithms_file) {
  return std::make_unique<DeviceArrays>(model, stream, compute, algorithms_file);
}

}  // namespace tarn::worker
