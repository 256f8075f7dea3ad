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
    float* grad = train ? compute.Get<float>(batch.rows) : nullptr;
    const auto loss = compute.LogisticLoss(batch.rows, logits, batch.labels, scale, grad);
    if (!train) return {.logits = logits, .loss = loss};
    LinearTermBackward(compute, batch, grad, views[0]);
    return {.logits = logits, .loss = loss};
  }
};

}  // namespace

Expected<std::unique_ptr<Model>> MakeLogisticRegression(const Job& job, const ModelShape&) {
  return std::make_unique<LogisticRegression>(job);
}

}  // namespace tarn::worker
