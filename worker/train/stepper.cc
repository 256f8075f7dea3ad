#include "worker/train/stepper.h"

#include "kernels/elementwise.h"
#include "kernels/rows.h"

namespace tarn::worker {

Stepper::Stepper(Model* model, float scale, double clip_global_norm)
    : model_(model), scale_(scale), clip_global_norm_(clip_global_norm) {
  const std::size_t tables = model_->tables().size();
  views_.resize(tables);
  rows_.resize(tables);
  gradients_.resize(tables);
}

void Stepper::MakeViews(std::span<const Plan* const> plans, std::span<const Buffer> values, bool train) {
  out_.assign(plans.size(), Buffer());
  for (std::size_t t = 0; t < plans.size(); ++t) {
    const Plan& plan = *plans[t];
    const std::size_t floats = plan.keys.size() * plan.dim;
    if (train) {
      out_[t] = Buffer::Allocate(floats * sizeof(float));
      kernels::Fill(floats, 0.0f, out_[t].as_mutable<float>().data());
    }
    const float* pulled = values[t].as<float>().data();
    if (model_->tables()[t].rows == RowsNeeded::kAll) {
      // A dense table's plan is ordered by partition; models see rows 0, 1, 2, ...
      rows_[t].resize(floats);
      gradients_[t].assign(floats, 0.0f);
      kernels::GatherByIndex(plan.dim, plan.keys.size(), pulled, plan.index.data(), rows_[t].data());
      views_[t] = {rows_[t].data(), gradients_[t].data(), nullptr, plan.keys.size()};
    } else {
      views_[t] = {pulled, train ? out_[t].as_mutable<float>().data() : nullptr, plan.index.data(), plan.keys.size()};
    }
  }
}

std::vector<Buffer> Stepper::Run(const Batch& batch, std::span<const Plan* const> plans, std::span<const Buffer> values,
                                 bool train, QualityTally* quality) {
  MakeViews(plans, values, train);
  if (batch.rows > 0) model_->Step({&batch, views_, scale_, train}, quality);
  if (!train) return {};
  double norm = 0;
  for (std::size_t t = 0; t < plans.size(); ++t) {
    auto out = out_[t].as_mutable<float>();
    if (model_->tables()[t].rows == RowsNeeded::kAll)
      kernels::ScatterByIndex(plans[t]->dim, plans[t]->keys.size(), gradients_[t].data(), plans[t]->index.data(),
                              out.data());
    if (clip_global_norm_ > 0) norm += kernels::SquaredNorm(out.size(), out.data());
  }
  if (const float scale = kernels::ClipScale(norm, static_cast<float>(clip_global_norm_)); scale != 1.0f)
    for (Buffer& buffer : out_) {
      auto out = buffer.as_mutable<float>();
      kernels::Scale(out.size(), scale, out.data());
    }
  return std::move(out_);
}

}  // namespace tarn::worker
