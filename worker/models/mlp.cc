// Multi-layer perceptron over the dense columns, with softmax over the classes.

#include <cmath>

#include "kernels/loss.h"
#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

std::vector<std::uint32_t> With(std::vector<std::uint32_t> sizes, std::uint32_t last) {
  sizes.push_back(last);
  return sizes;
}

class Mlp : public Model {
 public:
  Mlp(const Job& job, const ModelShape& shape)
      : classes_(shape.classes),
        stack_(job, "layer", shape.dense_columns, With(job.model.hidden, shape.classes), false, &tables_) {}

  void Step(const StepInput& input, QualityTally* quality) override {
    const Batch& batch = *input.batch;
    labels_.resize(batch.rows);
    for (std::size_t r = 0; r < batch.rows; ++r) labels_[r] = static_cast<std::uint32_t>(batch.labels[r]);
    grad_.resize(batch.rows * classes_);
    const float* logits = stack_.Forward(batch.rows, batch.dense.data(), input.views);
    // Row by row, since the quality wants each row's loss.
    for (std::size_t r = 0; r < batch.rows; ++r) {
      const auto row = kernels::SoftmaxCrossEntropy(1, classes_, logits + r * classes_, &labels_[r], input.scale,
                                                    input.train ? &grad_[r * classes_] : nullptr);
      quality->AddClass(row.loss, row.correct == 1);
    }
    if (input.train) stack_.Backward(batch.rows, batch.dense.data(), grad_.data(), nullptr, input.views);
  }

 private:
  std::uint32_t classes_;
  LayerStack stack_;
  std::vector<float> grad_;
  std::vector<std::uint32_t> labels_;
};

}  // namespace

Expected<std::unique_ptr<Model>> MakeMlp(const Job& job, const ModelShape& shape) {
  if (shape.dense_columns == 0)
    return Fail(ErrorCode::kInvalidArgument,
                "model.kind = \"mlp\" needs dense columns: images (format idx) or data.dense_integers = true");
  TARN_RETURN_IF_ERROR(CheckLayers("layer", shape.dense_columns, job.model.hidden));
  return std::make_unique<Mlp>(job, shape);
}

}  // namespace tarn::worker
