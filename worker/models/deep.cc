// Wide & Deep (Cheng et al., DLRS 2016) and DeepFM (Guo et al., IJCAI 2017): the linear term, a stack of layers over
// the concatenated embeddings of a row and, for DeepFM, the factorization machine's term over the same embeddings.

#include <fmt/format.h>

#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

class Deep : public Model {
 public:
  Deep(const Job& job, const ModelShape& shape, bool with_fm)
      : Model({LinearTable(job), EmbeddingTable(job)}),
        dim_(job.model.embedding_dim),
        width_(shape.fields * dim_),
        with_fm_(with_fm),
        stack_(job, MakeDenseLayers(job, "layer", width_, With(job.model.hidden, 1), false, &tables_)) {}

  Predictions Step(Compute& compute, const StepInput& input) override {
    const auto& [batch, views, scale, train] = input;
    const TableView &linear = views[0], &embedding = views[1];
    float* logits = compute.Get<float>(batch.rows);
    float* x = compute.Get<float>(batch.rows * width_);
    float* sums = with_fm_ ? compute.Get<float>(batch.rows * dim_) : nullptr;
    LinearTerm(compute, batch, linear, logits);
    compute.ConcatForward(batch, dim_, embedding, x, width_);
    compute.Add(batch.rows, stack_.Forward(compute, batch.rows, x, views), logits);
    if (with_fm_) AddPairs(compute, batch, embedding, sums, logits);
    float* grad = train ? compute.Get<float>(batch.rows) : nullptr;
    const auto loss = compute.LogisticLoss(batch.rows, logits, batch.labels, scale, grad);
    if (!train) return {.logits = logits, .loss = loss};

    float* dx = compute.Get<float>(batch.rows * width_);
    LinearTermBackward(compute, batch, grad, linear);
    if (with_fm_) compute.FmBackward(batch, dim_, grad, sums, embedding);
    stack_.Backward(compute, batch.rows, x, grad, dx, views);
    compute.ConcatBackward(batch, dim_, dx, width_, embedding);
    return {.logits = logits, .loss = loss};
  }

 private:
  void AddPairs(Compute& compute, const BatchView& batch, const TableView& embedding, float* sums, float* logits) {
    float* pairs = compute.Get<float>(batch.rows);
    compute.FmForward(batch, dim_, embedding, pairs, sums);
    compute.Add(batch.rows, pairs, logits);
  }

  std::uint32_t dim_, width_;
  bool with_fm_;
  LayerStack stack_;
};

Expected<std::unique_ptr<Model>> MakeDeep(const Job& job, const ModelShape& shape, bool with_fm) {
  if (shape.fields == 0)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("model.kind = \"{}\" needs rows with the same number of keys (format criteo), not libsvm",
                            Name(job.model.kind)));
  TARN_RETURN_IF_ERROR(CheckLayers("layer", shape.fields * job.model.embedding_dim, "model.hidden", job.model.hidden));
  return std::make_unique<Deep>(job, shape, with_fm);
}

}  // namespace

Expected<std::unique_ptr<Model>> MakeWideDeep(const Job& job, const ModelShape& shape) {
  return MakeDeep(job, shape, false);
}

Expected<std::unique_ptr<Model>> MakeDeepFm(const Job& job, const ModelShape& shape) {
  return MakeDeep(job, shape, true);
}

}  // namespace tarn::worker
