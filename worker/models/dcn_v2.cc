// DCN v2 (Wang et al., WWW 2021, arXiv:2008.13535), stacked: the concatenated embeddings of a row, preceded by the
// output of a bottom stack over the dense columns (if any), pass through cross layers and then a stack of layers to the
// logit.

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

// W and the bias of a cross layer; W = U V if the job sets a rank.
std::vector<DenseLayer> MakeCrossMatrix(const Job& job, const std::string& name, std::uint32_t width,
                                        std::vector<TableUse>* tables) {
  const std::uint32_t rank = job.model.cross_rank;
  if (rank == 0) return {MakeDenseLayer(job, name, width, width, {}, tables)};
  const DenseLayer down = MakeDenseLayer(job, name + ".v", width, rank, {.bias = false}, tables);
  return {down, MakeDenseLayer(job, name + ".u", rank, width, {}, tables)};
}

// x -> x0 * (W x + b) + x. All are rows x width.
class CrossLayer {
 public:
  CrossLayer(const Job& job, const std::string& name, std::uint32_t width, std::vector<TableUse>* tables)
      : width_(width), recompute_(job.train.recompute), inner_(job, MakeCrossMatrix(job, name, width, tables)) {}

  // x must be valid until Backward.
  const float* Forward(Compute& compute, std::size_t rows, const float* x0, const float* x,
                       std::span<const TableView> views) {
    x_ = x;
    float* out = compute.Get<float>(rows * width_);
    const Workspace::Mark mark = compute.memory().mark();
    y_ = inner_.Forward(compute, rows, x, views);
    compute.CrossForward(rows * width_, x0, y_, x, out);
    if (recompute_) compute.memory().Release(mark);
    return out;
  }

  // From grad_out, the gradient with respect to the output: adds to grad_x0, overwrites grad_x.
  void Backward(Compute& compute, std::size_t rows, const float* x0, const float* grad_out, float* grad_x0,
                float* grad_x, std::span<const TableView> views) {
    const Workspace::Mark mark = compute.memory().mark();
    if (recompute_) y_ = inner_.ForwardAgain(compute, rows, x_, views);
    float* grad_y = compute.Get<float>(rows * width_);
    compute.CrossBackward(rows * width_, x0, y_, grad_out, grad_y, grad_x0);
    inner_.Backward(compute, rows, x_, grad_y, grad_x, views);
    compute.Add(rows * width_, grad_out, grad_x);
    compute.memory().Release(mark);
  }

 private:
  std::uint32_t width_;
  bool recompute_;
  LayerStack inner_;
  const float *x_ = nullptr, *y_ = nullptr;  // of the last Forward
};

class DcnV2 : public Model {
 public:
  DcnV2(const Job& job, const ModelShape& shape)
      : Model({EmbeddingTable(job)}),
        dim_(job.model.embedding_dim),
        embeddings_at_(shape.dense_columns != 0 ? dim_ : 0),
        width_(embeddings_at_ + shape.fields * dim_) {
    if (shape.dense_columns != 0)
      bottom_.emplace(
          job, MakeDenseLayers(job, "bottom", shape.dense_columns, With(job.model.bottom, dim_), true, &tables_));
    for (std::uint32_t i = 0; i < job.model.cross_layers; ++i)
      cross_.emplace_back(job, fmt::format("cross.{}", i), width_, &tables_);
    top_.emplace(job, MakeDenseLayers(job, "top", width_, With(job.model.hidden, 1), false, &tables_));
  }

  Predictions Step(Compute& compute, const StepInput& input) override {
    const auto& [batch, views, scale, train] = input;
    float* x0 = compute.Get<float>(batch.rows * width_);
    if (bottom_) {
      const float* bottom = bottom_->Forward(compute, batch.rows, batch.dense, views);
      compute.CopyColumns(batch.rows, dim_, bottom, dim_, x0, width_);
    }
    compute.ConcatForward(batch, dim_, views[0], x0 + embeddings_at_, width_);
    const float* x = x0;
    for (CrossLayer& layer : cross_) x = layer.Forward(compute, batch.rows, x0, x, views);
    const float* logits = top_->Forward(compute, batch.rows, x, views);
    float* grad = train ? compute.Get<float>(batch.rows) : nullptr;
    const auto loss = compute.LogisticLoss(batch.rows, logits, batch.labels, scale, grad);
    if (!train) return {.logits = logits, .loss = loss};

    Backward(compute, input, x0, x, grad);
    return {.logits = logits, .loss = loss};
  }

 private:
  void Backward(Compute& compute, const StepInput& input, const float* x0, const float* top_in, float* grad) {
    const BatchView& batch = input.batch;
    const std::size_t n = batch.rows * width_;
    float* grad_out = compute.Get<float>(n);
    float* grad_x = compute.Get<float>(n);
    float* grad_x0 = compute.Get<float>(n);
    compute.Fill(n, 0.0f, grad_x0);
    top_->Backward(compute, batch.rows, top_in, grad, grad_out, input.views);
    for (std::size_t i = cross_.size(); i-- > 0;) {
      cross_[i].Backward(compute, batch.rows, x0, grad_out, grad_x0, grad_x, input.views);
      std::swap(grad_out, grad_x);
    }
    compute.Add(n, grad_out, grad_x0);
    compute.ConcatBackward(batch, dim_, grad_x0 + embeddings_at_, width_, input.views[0]);
    if (!bottom_) return;
    float* grad_bottom = compute.Get<float>(batch.rows * dim_);
    compute.CopyColumns(batch.rows, dim_, grad_x0, width_, grad_bottom, dim_);
    bottom_->Backward(compute, batch.rows, batch.dense, grad_bottom, nullptr, input.views);
  }

  std::uint32_t dim_;
  std::uint32_t embeddings_at_;  // floats of a row of x0 before its embeddings: the output of the bottom stack
  std::uint32_t width_;          // floats of a row of x0
  std::optional<LayerStack> bottom_, top_;
  std::vector<CrossLayer> cross_;
};

}  // namespace

Expected<std::unique_ptr<Model>> MakeDcnV2(const Job& job, const ModelShape& shape) {
  if (shape.fields == 0)
    return Fail(ErrorCode::kInvalidArgument,
                "model.kind = \"dcn_v2\" needs rows with the same number of keys (format criteo), not libsvm");
  const std::uint32_t vectors = shape.fields + (shape.dense_columns != 0 ? 1 : 0);
  const std::uint32_t width = vectors * job.model.embedding_dim;
  if (shape.dense_columns != 0)
    TARN_RETURN_IF_ERROR(CheckLayers("bottom", shape.dense_columns, "model.bottom", job.model.bottom));
  if (job.model.cross_layers != 0) TARN_RETURN_IF_ERROR(CheckInputs("cross.0", width));
  TARN_RETURN_IF_ERROR(CheckLayers("top", width, "model.hidden", job.model.hidden));
  return std::make_unique<DcnV2>(job, shape);
}

}  // namespace tarn::worker
