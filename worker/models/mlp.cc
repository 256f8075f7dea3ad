// Multi-layer perceptron over the dense columns, with softmax over the classes.

#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

class Mlp : public Model {
 public:
  Mlp(const Job& job, const ModelShape& shape)
      : classes_(shape.classes),
        stack_(job,
               MakeDenseLayers(job, "layer", shape.dense_columns, With(job.model.hidden, classes_), false, &tables_)) {}

  Predictions Step(Compute& compute, const StepInput& input) override {
    const auto& [batch, views, scale, train] = input;
    double* losses = compute.Get<double>(batch.rows);
    auto* correct = compute.Get<std::uint32_t>(batch.rows);
    float* grad = train ? compute.Get<float>(batch.rows * classes_) : nullptr;
    const float* logits = stack_.Forward(compute, batch.rows, batch.dense, views);
    compute.SoftmaxByRow(batch.rows, classes_, logits, batch.labels, scale, grad, losses, correct);
    if (train) stack_.Backward(compute, batch.rows, batch.dense, grad, nullptr, views);
    return {.losses = losses, .correct = correct};
  }

 private:
  std::uint32_t classes_;
  LayerStack stack_;
};

}  // namespace

Expected<std::unique_ptr<Model>> MakeMlp(const Job& job, const ModelShape& shape) {
  if (shape.dense_columns == 0)
    return Fail(ErrorCode::kInvalidArgument,
                "model.kind = \"mlp\" needs dense columns: images (format idx) or data.dense_integers = true");
  TARN_RETURN_IF_ERROR(CheckLayers("layer", shape.dense_columns, "model.hidden", job.model.hidden));
  return std::make_unique<Mlp>(job, shape);
}

}  // namespace tarn::worker
