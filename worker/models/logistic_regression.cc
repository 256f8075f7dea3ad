// Logistic regression: logit = bias + sum of the keys' weights.

#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

class LogisticRegression : public Model {
 public:
  explicit LogisticRegression(const Job& job) : Model({LinearTable(job)}) {}

  void Step(const StepInput& input, QualityTally* quality) override {
    const Batch& batch = *input.batch;
    logits_.resize(batch.rows);
    grad_.resize(batch.rows);
    LinearTerm(batch, input.views[0], logits_.data());
    ScoreBinary(input, logits_.data(), input.train ? grad_.data() : nullptr, quality);
    if (input.train) LinearTermBackward(batch, grad_.data(), input.views[0]);
  }

 private:
  std::vector<float> logits_, grad_;
};

}  // namespace

Expected<std::unique_ptr<Model>> MakeLogisticRegression(const Job& job, const ModelShape&) {
  return std::make_unique<LogisticRegression>(job);
}

}  // namespace tarn::worker
