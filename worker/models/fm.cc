// Factorization machine (Rendle, ICDM 2010): the linear term and the pairwise products of the keys' factors.

#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

class Fm : public Model {
 public:
  explicit Fm(const Job& job) : Model({LinearTable(job), EmbeddingTable(job)}), dim_(job.model.embedding_dim) {}

  Predictions Step(Compute& compute, const StepInput& input) override {
    const auto& [batch, views, scale, train] = input;
    const TableView &linear = views[0], &factors = views[1];
    float* logits = compute.Get<float>(batch.rows);
    float* pairs = compute.Get<float>(batch.rows);
    float* sums = compute.Get<float>(batch.rows * dim_);
    LinearTerm(compute, batch, linear, logits);
    compute.FmForward(batch, dim_, factors, pairs, sums);
    compute.Add(batch.rows, pairs, logits);
    float* grad = train ? compute.Get<float>(batch.rows) : nullptr;
    const auto loss = compute.LogisticLoss(batch.rows, logits, batch.labels, scale, grad);
    if (!train) return {.logits = logits, .loss = loss};
    LinearTermBackward(compute, batch, grad, linear);
    compute.FmBackward(batch, dim_, grad, sums, factors);
    return {.logits = logits, .loss = loss};
  }

 private:
  std::uint32_t dim_;
};

}  // namespace

Expected<std::unique_ptr<Model>> MakeFm(const Job& job, const ModelShape&) { return std::make_unique<Fm>(job); }

}  // namespace tarn::worker
