#include <utility>

#include "kernels/elementwise.h"
#include "kernels/rows.h"
#include "worker/train/step_arrays.h"

namespace tarn::worker {
namespace {

// Rows and gradients of sparse tables are used in place; those of dense tables are copied into key order.
class HostArrays : public StepArrays {
 public:
  explicit HostArrays(const Model& model) : model_(model), rows_(model.tables().size()), gradients_(rows_.size()) {
    views_.resize(rows_.size());
  }

  Status Bring(const StepSource& source) override {
    source_ = source;
    batch_ = BatchView::Of(*source.batch);
    out_.assign(source.plans.size(), Buffer());
    for (std::size_t t = 0; t < source.plans.size(); ++t) BringTable(t);
    return {};
  }

  void Keep(const Predictions& predictions, std::size_t begin, std::size_t rows, QualityTally* quality) override {
    worker::Tally(predictions, std::span(source_.batch->labels).subspan(begin, rows), quality);
  }

  // Gradients need no unscaling and every batch counts, because the loss is scaled only for fp16, on GPUs.
  Status Return(const GradientRule& rule) override {
    if (!source_.train) return {};
    double norm = 0;
    for (std::size_t t = 0; t < out_.size(); ++t) {
      const Plan& plan = *source_.plans[t];
      auto out = out_[t].as_mutable<float>();
      if (IsDense(t))
        kernels::ScatterByIndex(plan.dim, plan.keys.size(), gradients_[t].data(), plan.index.data(), out.data());
      if (rule.norm_max > 0) norm += kernels::SquaredNorm(out.size(), out.data());
    }
    if (const float scale = kernels::ClipScale(norm, rule.norm_max); scale != 1.0f)
      for (Buffer& buffer : out_) {
        auto out = buffer.as_mutable<float>();
        kernels::Scale(out.size(), scale, out.data());
      }
    return {};
  }

  Expected<Gradients> Finish() override {
    if (!source_.train) return Gradients{};
    return Gradients{.values = std::move(out_)};
  }

 private:
  bool IsDense(std::size_t t) const { return model_.tables()[t].rows == RowsNeeded::kAll; }

  void BringTable(std::size_t t) {
    const Plan& plan = *source_.plans[t];
    TARN_CHECK(plan.placed == nullptr, "plans of a step on the host have no arrays on a GPU");
    const std::size_t floats = plan.keys.size() * plan.dim;
    const float* placed = source_.PlacedAt(t);
    const float* pulled = placed != nullptr ? placed : source_.values[t].as<float>().data();
    if (IsDense(t)) {
      // A dense table's plan is ordered by partition; models need rows 0, 1, 2, ...
      rows_[t].resize(floats);
      kernels::GatherByIndex(plan.dim, plan.keys.size(), pulled, plan.index.data(), rows_[t].data());
      views_[t] = {rows_[t].data(), nullptr, nullptr, plan.keys.size()};
    } else {
      views_[t] = {pulled, nullptr, plan.index.data(), plan.keys.size()};
    }
    if (source_.train) views_[t].gradients = MakeGradients(t, floats);
  }

  // Gradients, zeroed because the model adds to them.
  float* MakeGradients(std::size_t t, std::size_t floats) {
    out_[t] = Buffer::Allocate(floats * sizeof(float));
    if (IsDense(t)) {
      gradients_[t].assign(floats, 0.0f);
      return gradients_[t].data();
    }
    float* gradients = out_[t].as_mutable<float>().data();
    kernels::Fill(floats, 0.0f, gradients);
    return gradients;
  }

  const Model& model_;
  StepSource source_;
  std::vector<std::vector<float>> rows_, gradients_;  // of dense tables, in natural order
  std::vector<Buffer> out_;
};

}  // namespace

std::unique_ptr<StepArrays> MakeHostArrays(const Model& model) { return std::make_unique<HostArrays>(model); }

}  // namespace tarn::worker
