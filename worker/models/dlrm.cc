// DLRM (Naumov et al., 2019, arXiv:1906.00091): a bottom stack over the dense columns, embeddings, their pairwise dot
// products, and a top stack to the logit.

#include <cstring>

#include "kernels/embedding.h"
#include "kernels/interaction.h"
#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

std::vector<std::uint32_t> With(std::vector<std::uint32_t> sizes, std::uint32_t last) {
  sizes.push_back(last);
  return sizes;
}

class Dlrm : public Model {
 public:
  Dlrm(const Job& job, const ModelShape& shape)
      : Model({EmbeddingTable(job)}),
        dim_(job.model.embedding_dim),
        fields_(shape.fields),
        vectors_(shape.fields + 1),
        width_(kernels::InteractionWidth(vectors_, dim_)),
        bottom_(job, "bottom", shape.dense_columns, With(job.model.bottom, dim_), true, &tables_),
        top_(job, "top", static_cast<std::uint32_t>(width_), With(job.model.hidden, 1), false, &tables_) {}

  void Step(const StepInput& input, QualityTally* quality) override {
    const Batch& batch = *input.batch;
    const TableView& embedding = input.views[0];
    const std::size_t sample = std::size_t{vectors_} * dim_;
    vectors_in_.resize(batch.rows * sample);
    features_.resize(batch.rows * width_);
    grad_.resize(batch.rows);
    const float* bottom = bottom_.Forward(batch.rows, batch.dense.data(), input.views);
    for (std::size_t r = 0; r < batch.rows; ++r)
      std::memcpy(&vectors_in_[r * sample], bottom + r * dim_, dim_ * sizeof(float));
    kernels::EmbeddingConcatForward(batch.rows, fields_, dim_, embedding.rows, embedding.index,
                                    vectors_in_.data() + dim_, sample);
    kernels::InteractionForward(batch.rows, vectors_, dim_, vectors_in_.data(), features_.data());
    const float* logits = top_.Forward(batch.rows, features_.data(), input.views);
    ScoreBinary(input, logits, input.train ? grad_.data() : nullptr, quality);
    if (input.train) Backward(input);
  }

 private:
  void Backward(const StepInput& input) {
    const Batch& batch = *input.batch;
    const TableView& embedding = input.views[0];
    const std::size_t sample = std::size_t{vectors_} * dim_;
    grad_features_.resize(batch.rows * width_);
    grad_vectors_.resize(batch.rows * sample);
    grad_bottom_.resize(batch.rows * dim_);
    top_.Backward(batch.rows, features_.data(), grad_.data(), grad_features_.data(), input.views);
    kernels::InteractionBackward(batch.rows, vectors_, dim_, vectors_in_.data(), grad_features_.data(),
                                 grad_vectors_.data());
    kernels::EmbeddingConcatBackward(batch.rows, fields_, dim_, grad_vectors_.data() + dim_, sample, embedding.index,
                                     embedding.gradients);
    for (std::size_t r = 0; r < batch.rows; ++r)
      std::memcpy(&grad_bottom_[r * dim_], &grad_vectors_[r * sample], dim_ * sizeof(float));
    bottom_.Backward(batch.rows, batch.dense.data(), grad_bottom_.data(), nullptr, input.views);
  }

  std::uint32_t dim_, fields_, vectors_;
  std::size_t width_;
  LayerStack bottom_, top_;
  std::vector<float> vectors_in_, features_, grad_, grad_features_, grad_vectors_, grad_bottom_;
};

}  // namespace

Expected<std::unique_ptr<Model>> MakeDlrm(const Job& job, const ModelShape& shape) {
  if (shape.dense_columns == 0)
    return Fail(ErrorCode::kInvalidArgument,
                "model.kind = \"dlrm\" needs dense columns: set data.dense_integers = true (and data.bins = [\"none\"] "
                "unless the integers shall be categories too)");
  if (shape.fields == 0)
    return Fail(ErrorCode::kInvalidArgument, "model.kind = \"dlrm\" needs rows with the same number of keys");
  const auto width = kernels::InteractionWidth(shape.fields + 1, job.model.embedding_dim);
  TARN_RETURN_IF_ERROR(CheckLayers("bottom", shape.dense_columns, With(job.model.bottom, job.model.embedding_dim)));
  TARN_RETURN_IF_ERROR(CheckLayers("top", static_cast<std::uint32_t>(width), job.model.hidden));
  return std::make_unique<Dlrm>(job, shape);
}

}  // namespace tarn::worker
