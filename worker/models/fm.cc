// Factorization machine (Rendle, ICDM 2010): the linear term and the pairwise products of the keys' factors.

#include "kernels/fm.h"
#include "kernels/elementwise.h"
#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

class Fm : public Model {
 public:
  explicit Fm(const Job& job) : Model({LinearTable(job), EmbeddingTable(job)}), dim_(job.model.embedding_dim) {}

  void Step(const StepInput& input, QualityTally* quality) override {
    const Batch& batch = *input.batch;
    const float* weights = batch.weights.empty() ? nullptr : batch.weights.data();
    const TableView& factors = input.views[1];
    logits_.resize(batch.rows);
    pairs_.resize(batch.rows);
    grad_.resize(batch.rows);
    sums_.resize(batch.rows * dim_);
    LinearTerm(batch, input.views[0], logits_.data());
    kernels::FmForward(batch.rows, dim_, factors.rows, factors.index, batch.offsets.data(), weights, pairs_.data(),
                       sums_.data());
    kernels::Add(batch.rows, pairs_.data(), logits_.data());
    ScoreBinary(input, logits_.data(), input.train ? grad_.data() : nullptr, quality);
    if (!input.train) return;
    LinearTermBackward(batch, grad_.data(), input.views[0]);
    kernels::FmBackward(batch.rows, dim_, factors.rows, factors.index, batch.offsets.data(), weights, grad_.data(),
                        sums_.data(), factors.gradients);
  }

 private:
  std::uint32_t dim_;
  std::vector<float> logits_, pairs_, grad_, sums_;
};

}  // namespace

Expected<std::unique_ptr<Model>> MakeFm(const Job& job, const ModelShape&) { return std::make_unique<Fm>(job); }

}  // namespace tarn::worker
