// Logistic regression: logit = bias + sum of the keys' weights.

#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

class LogisticRegression : public Model {
 public:
  explicit LogisticRegression(const Job& job) : Model({LinearTable(job)}) {}

  Predictions Step(Compute& compute, const StepInput& input) override {
    const auto& [batch, views, scale, train] = input;
    float* logits = compute.Get<float>(batch.rows);
    LinearTerm(compute, batch, views[0], logits);
    if (!train) return {.logits = logits};
    float* grad = compute.Get<float>(batch.rows);
    compute.LogisticGradient(batch.rows, logits, batch.labels, scale, grad);
    LinearTermBackward(compute, batch, grad, views[0]);
    return {.logits = logits};
  }
};

}  // namespace

Expected<std::unique_ptr<Model>> MakeLogisticRegression(const Job& job, const ModelShape&) {
  return std::make_unique<LogisticRegression>(job);
}

}  // namespace tarn::worker
