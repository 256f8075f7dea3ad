// DCN v2 (Wang et al., WWW 2021, arXiv:2008.13535), stacked: the row's embeddings side by side, behind a bottom stack
// over the dense columns where there are some, go through cross layers and then a stack of layers to the logit.

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "kernels/cross.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

std::vector<std::uint32_t> With(std::vector<std::uint32_t> sizes, std::uint32_t last) {
  sizes.push_back(last);
  return sizes;
}

// x -> x0 * (W x + b) + x; W = U V if a rank is asked for.
class CrossLayer {
 public:
  CrossLayer(const Job& job, const std::string& name, std::uint32_t width, std::uint32_t rank,
             std::vector<TableUse>* tables)
      : width_(width) {
    if (rank != 0) down_.emplace(job, name + ".v", width, rank, DenseLayer::Options{.bias = false}, tables);
    const std::string up = rank != 0 ? name + ".u" : name;
    up_.emplace(job, up, rank != 0 ? rank : width, width, DenseLayer::Options{}, tables);
  }

  // All are rows x width. Returns x_{l+1}, valid until the next call; x must live until Backward.
  const float* Forward(std::size_t rows, const float* x0, const float* x, std::span<const TableView> views) {
    x_ = x;
    inner_ = down_ ? down_->Forward(rows, x, views) : x;
    y_ = up_->Forward(rows, inner_, views);
    out_.resize(rows * width_);
    kernels::CrossForward(out_.size(), x0, y_, x, out_.data());
    return out_.data();
  }

  // From grad_out, the gradient with respect to x_{l+1}: adds to grad_x0, overwrites grad_x.
  void Backward(std::size_t rows, const float* x0, const float* grad_out, float* grad_x0, float* grad_x,
                std::span<const TableView> views) {
    grad_y_.resize(rows * width_);
    kernels::CrossBackward(grad_y_.size(), x0, y_, grad_out, grad_y_.data(), grad_x0);
    if (down_) {
      grad_inner_.resize(rows * down_->out());
      up_->Backward(rows, inner_, grad_y_.data(), grad_inner_.data(), views);
      down_->Backward(rows, x_, grad_inner_.data(), grad_x, views);
    } else {
      up_->Backward(rows, x_, grad_y_.data(), grad_x, views);
    }
    kernels::Add(rows * width_, grad_out, grad_x);
  }

 private:
  std::uint32_t width_;
  std::optional<DenseLayer> down_, up_;
  const float *x_ = nullptr, *inner_ = nullptr, *y_ = nullptr;  // of the last Forward
  std::vector<float> out_, grad_y_, grad_inner_;
};

class DcnV2 : public Model {
 public:
  DcnV2(const Job& job, const ModelShape& shape)
      : Model({EmbeddingTable(job)}),
        dim_(job.model.embedding_dim),
        fields_(shape.fields),
        vectors_(shape.fields + (shape.dense_columns != 0 ? 1 : 0)),
        width_(vectors_ * dim_) {
    if (shape.dense_columns != 0)
      bottom_.emplace(job, "bottom", shape.dense_columns, With(job.model.bottom, dim_), true, &tables_);
    for (std::uint32_t i = 0; i < job.model.cross_layers; ++i)
      cross_.emplace_back(job, fmt::format("cross.{}", i), width_, job.model.cross_rank, &tables_);
    top_.emplace(job, "top", width_, With(job.model.hidden, 1), false, &tables_);
  }

  void Step(const StepInput& input, QualityTally* quality) override {
    const Batch& batch = *input.batch;
    const TableView& embedding = input.views[0];
    x0_.resize(batch.rows * width_);
    grad_.resize(batch.rows);
    if (bottom_) {
      const float* bottom = bottom_->Forward(batch.rows, batch.dense.data(), input.views);
      for (std::size_t r = 0; r < batch.rows; ++r)
        std::memcpy(&x0_[r * width_], bottom + r * dim_, dim_ * sizeof(float));
    }
    kernels::EmbeddingConcatForward(batch.rows, fields_, dim_, embedding.rows, embedding.index,
                                    x0_.data() + EmbeddingsAt(), width_);
    const float* x = x0_.data();
    for (CrossLayer& layer : cross_) x = layer.Forward(batch.rows, x0_.data(), x, input.views);
    const float* logits = top_->Forward(batch.rows, x, input.views);
    ScoreBinary(input, logits, input.train ? grad_.data() : nullptr, quality);
    if (input.train) Backward(input, x);
  }

 private:
  std::size_t EmbeddingsAt() const { return bottom_ ? dim_ : 0; }

  void Backward(const StepInput& input, const float* top_in) {
    const Batch& batch = *input.batch;
    const std::size_t n = batch.rows * width_;
    grad_out_.resize(n);
    grad_x_.resize(n);
    grad_x0_.resize(n);
    kernels::Fill(n, 0.0f, grad_x0_.data());
    top_->Backward(batch.rows, top_in, grad_.data(), grad_out_.data(), input.views);
    for (std::size_t i = cross_.size(); i-- > 0;) {
      cross_[i].Backward(batch.rows, x0_.data(), grad_out_.data(), grad_x0_.data(), grad_x_.data(), input.views);
      grad_out_.swap(grad_x_);
    }
    kernels::Add(n, grad_out_.data(), grad_x0_.data());
    const TableView& embedding = input.views[0];
    kernels::EmbeddingConcatBackward(batch.rows, fields_, dim_, grad_x0_.data() + EmbeddingsAt(), width_,
                                     embedding.index, embedding.gradients);
    if (!bottom_) return;
    grad_bottom_.resize(batch.rows * dim_);
    for (std::size_t r = 0; r < batch.rows; ++r)
      std::memcpy(&grad_bottom_[r * dim_], &grad_x0_[r * width_], dim_ * sizeof(float));
    bottom_->Backward(batch.rows, batch.dense.data(), grad_bottom_.data(), nullptr, input.views);
  }

  std::uint32_t dim_, fields_, vectors_, width_;
  std::optional<LayerStack> bottom_, top_;
  std::vector<CrossLayer> cross_;
  std::vector<float> x0_, grad_, grad_out_, grad_x_, grad_x0_, grad_bottom_;
};

}  // namespace

Expected<std::unique_ptr<Model>> MakeDcnV2(const Job& job, const ModelShape& shape) {
  if (shape.fields == 0)
    return Fail(ErrorCode::kInvalidArgument, "model.kind = \"dcn_v2\" needs rows with the same number of keys");
  const std::uint32_t vectors = shape.fields + (shape.dense_columns != 0 ? 1 : 0);
  const std::uint32_t width = vectors * job.model.embedding_dim;
  if (shape.dense_columns != 0)
    TARN_RETURN_IF_ERROR(CheckLayers("bottom", shape.dense_columns, With(job.model.bottom, job.model.embedding_dim)));
  if (job.model.cross_layers != 0) TARN_RETURN_IF_ERROR(CheckLayers("cross", width, {width}));
  TARN_RETURN_IF_ERROR(CheckLayers("top", width, job.model.hidden));
  return std::make_unique<DcnV2>(job, shape);
}

}  // namespace tarn::worker
