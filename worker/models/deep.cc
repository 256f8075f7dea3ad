// Wide & Deep (Cheng et al., DLRS 2016) and DeepFM (Guo et al., IJCAI 2017): the linear term, a stack of layers over
// the row's embeddings side by side and, for DeepFM, the factorization machine's term over the same embeddings.

#include <fmt/format.h>

#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/fm.h"
#include "worker/models/factory.h"
#include "worker/models/layers.h"

namespace tarn::worker {
namespace {

std::vector<std::uint32_t> WithOutput(std::vector<std::uint32_t> hidden) {
  hidden.push_back(1);
  return hidden;
}

class Deep : public Model {
 public:
  Deep(const Job& job, const ModelShape& shape, bool with_fm)
      : Model({LinearTable(job), EmbeddingTable(job)}),
        dim_(job.model.embedding_dim),
        fields_(shape.fields),
        with_fm_(with_fm),
        stack_(job, "layer", fields_ * dim_, WithOutput(job.model.hidden), false, &tables_) {}

  void Step(const StepInput& input, QualityTally* quality) override {
    const Batch& batch = *input.batch;
    const TableView& embedding = input.views[1];
    const std::size_t width = std::size_t{fields_} * dim_;
    logits_.resize(batch.rows);
    grad_.resize(batch.rows);
    x_.resize(batch.rows * width);
    LinearTerm(batch, input.views[0], logits_.data());
    kernels::EmbeddingConcatForward(batch.rows, fields_, dim_, embedding.rows, embedding.index, x_.data(), width);
    kernels::Add(batch.rows, stack_.Forward(batch.rows, x_.data(), input.views), logits_.data());
    if (with_fm_) {
      pairs_.resize(batch.rows);
      sums_.resize(batch.rows * dim_);
      kernels::FmForward(batch.rows, dim_, embedding.rows, embedding.index, batch.offsets.data(), nullptr,
                         pairs_.data(), sums_.data());
      kernels::Add(batch.rows, pairs_.data(), logits_.data());
    }
    ScoreBinary(input, logits_.data(), input.train ? grad_.data() : nullptr, quality);
    if (input.train) Backward(input);
  }

 private:
  void Backward(const StepInput& input) {
    const Batch& batch = *input.batch;
    const TableView& embedding = input.views[1];
    const std::size_t width = std::size_t{fields_} * dim_;
    LinearTermBackward(batch, grad_.data(), input.views[0]);
    if (with_fm_)
      kernels::FmBackward(batch.rows, dim_, embedding.rows, embedding.index, batch.offsets.data(), nullptr,
                          grad_.data(), sums_.data(), embedding.gradients);
    dx_.resize(batch.rows * width);
    stack_.Backward(batch.rows, x_.data(), grad_.data(), dx_.data(), input.views);
    kernels::EmbeddingConcatBackward(batch.rows, fields_, dim_, dx_.data(), width, embedding.index,
                                     embedding.gradients);
  }

  std::uint32_t dim_, fields_;
  bool with_fm_;
  LayerStack stack_;
  std::vector<float> logits_, grad_, x_, dx_, pairs_, sums_;
};

Expected<std::unique_ptr<Model>> MakeDeep(const Job& job, const ModelShape& shape, bool with_fm) {
  if (shape.fields == 0)
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("model.kind = \"{}\" needs rows with the same number of keys (format criteo), not libsvm",
                            Name(job.model.kind)));
  TARN_RETURN_IF_ERROR(CheckLayers("layer", shape.fields * job.model.embedding_dim, job.model.hidden));
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
