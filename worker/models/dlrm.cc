// DLRM (Naumov et al., 2019, arXiv:1906.00091): a bottom stack over the dense columns, embeddings, their pairwise dot
// products, and a top stack to the logit.

#include "kernels/interaction.h"
#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

class Dlrm : public Model {
 public:
  Dlrm(const Job& job, const ModelShape& shape)
      : Model({EmbeddingTable(job)}),
        dim_(job.model.embedding_dim),
        vectors_(shape.fields + 1),
        row_floats_(std::size_t{vectors_} * dim_),
        width_(static_cast<std::uint32_t>(kernels::InteractionWidth(vectors_, dim_))),
        bottom_(job, MakeDenseLayers(job, "bottom", shape.dense_columns, With(job.model.bottom, dim_), true, &tables_)),
        top_(job, MakeDenseLayers(job, "top", width_, With(job.model.hidden, 1), false, &tables_)) {}

  Predictions Step(Compute& compute, const StepInput& input) override {
    const auto& [batch, views, scale, train] = input;
    const TableView& embedding = views[0];
    float* vectors = compute.Get<float>(batch.rows * row_floats_);
    float* features = compute.Get<float>(batch.rows * width_);
    const float* bottom = bottom_.Forward(compute, batch.rows, batch.dense, views);
    compute.CopyColumns(batch.rows, dim_, bottom, dim_, vectors, row_floats_);
    compute.ConcatForward(batch, dim_, embedding, vectors + dim_, row_floats_);
    compute.InteractionForward(batch.rows, vectors_, dim_, vectors, features);
    const float* logits = top_.Forward(compute, batch.rows, features, views);
    float* grad = train ? compute.Get<float>(batch.rows) : nullptr;
    const auto loss = compute.LogisticLoss(batch.rows, logits, batch.labels, scale, grad);
    if (!train) return {.logits = logits, .loss = loss};

    float* grad_features = compute.Get<float>(batch.rows * width_);
    float* grad_vectors = compute.Get<float>(batch.rows * row_floats_);
    float* grad_bottom = compute.Get<float>(batch.rows * dim_);
    top_.Backward(compute, batch.rows, features, grad, grad_features, views);
    compute.InteractionBackward(batch.rows, vectors_, dim_, vectors, grad_features, grad_vectors);
    compute.ConcatBackward(batch, dim_, grad_vectors + dim_, row_floats_, embedding);
    compute.CopyColumns(batch.rows, dim_, grad_vectors, row_floats_, grad_bottom, dim_);
    bottom_.Backward(compute, batch.rows, batch.dense, grad_bottom, nullptr, views);
    return {.logits = logits, .loss = loss};
  }

 private:
  std::uint32_t dim_, vectors_;
  std::size_t row_floats_;  // of all vectors of a row
  std::uint32_t width_;     // inputs of the top stack per row
  LayerStack bottom_, top_;
};

}  // namespace

Expected<std::unique_ptr<Model>> MakeDlrm(const Job& job, const ModelShape& shape) {
  if (shape.dense_columns == 0)
    return Fail(ErrorCode::kInvalidArgument,
                "model.kind = \"dlrm\" needs dense columns: set data.dense_integers = true (and data.bins = [\"none\"] "
                "unless the integers are categories too)");
  if (shape.fields == 0)
    return Fail(ErrorCode::kInvalidArgument,
                "model.kind = \"dlrm\" needs rows with the same number of keys (format criteo), not libsvm");
  const auto width = kernels::InteractionWidth(shape.fields + 1, job.model.embedding_dim);
  TARN_RETURN_IF_ERROR(CheckLayers("bottom", shape.dense_columns, "model.bottom", job.model.bottom));
  TARN_RETURN_IF_ERROR(CheckLayers("top", static_cast<std::uint32_t>(width), "model.hidden", job.model.hidden));
  return std::make_unique<Dlrm>(job, shape);
}

}  // namespace tarn::worker
