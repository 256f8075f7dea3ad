#include "worker/models/layers.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "core/limits.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/loss.h"

namespace tarn::worker {
namespace {

TableSpec BaseSpec(const Job& job, const std::string& name, const OptimizerSpec& optimizer) {
  TableSpec spec;
  spec.name = name;
  spec.optimizer = optimizer;
  spec.consistency = job.consistency;
  if (auto it = job.tables.find(name); it != job.tables.end()) {
    const TableOverride& o = it->second;
    if (o.has_consistency) spec.consistency = o.consistency;
    if (o.has_pull_codec) spec.pull_codec = o.pull_codec;
    if (o.has_push_codec) spec.push_codec = o.push_codec;
  }
  return spec;
}

const float* WeightsOrNull(const Batch& batch) { return batch.weights.empty() ? nullptr : batch.weights.data(); }

}  // namespace

TableUse LinearTable(const Job& job) {
  TableUse use{BaseSpec(job, "linear", job.optimizer.linear), RowsNeeded::kBatchKeysAndBias};
  use.spec.kind = TableKind::kSparse;
  use.spec.dim = 1;
  return use;
}

TableUse EmbeddingTable(const Job& job) {
  TableUse use{BaseSpec(job, "embedding", job.optimizer.embedding), RowsNeeded::kBatchKeys};
  use.spec.kind = TableKind::kSparse;
  use.spec.dim = job.model.embedding_dim;
  use.spec.initializer = {InitializerKind::kNormal, 0.0f, static_cast<float>(job.model.init_stddev)};
  return use;
}

void LinearTerm(const Batch& batch, const TableView& view, float* logits) {
  kernels::EmbeddingBagForward(batch.rows, 1, view.rows, view.index, batch.offsets.data(), WeightsOrNull(batch),
                               logits);
  const float bias = view.rows[view.index[batch.keys.size()]];
  for (std::size_t r = 0; r < batch.rows; ++r) logits[r] += bias;
}

void LinearTermBackward(const Batch& batch, const float* grad_logits, const TableView& view) {
  kernels::EmbeddingBagBackward(batch.rows, 1, grad_logits, view.index, batch.offsets.data(), WeightsOrNull(batch),
                                view.gradients);
  view.gradients[view.index[batch.keys.size()]] += static_cast<float>(kernels::Sum(batch.rows, grad_logits));
}

LayerStack::LayerStack(const Job& job, const std::string& name, std::uint32_t in, std::vector<std::uint32_t> sizes,
                       bool relu_last, std::vector<TableUse>* tables)
    : in_(in), sizes_(std::move(sizes)), relu_last_(relu_last), first_view_(tables->size()) {
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    TableUse use{BaseSpec(job, fmt::format("{}.{}", name, i), job.optimizer.dense), RowsNeeded::kAll};
    use.spec.kind = TableKind::kDense;
    use.spec.rows = sizes_[i];
    use.spec.dim = Inputs(i) + 1;
    const float reach = 1.0f / std::sqrt(static_cast<float>(Inputs(i)));
    use.spec.initializer = {InitializerKind::kUniform, -reach, reach};
    tables->push_back(use);
  }
  weights_.resize(sizes_.size());
  biases_.resize(sizes_.size());
  outputs_.resize(sizes_.size());
  gradients_.resize(sizes_.size());
}

float* LayerStack::Forward(std::size_t rows, const float* x, std::span<const TableView> views) {
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    const std::size_t in = Inputs(i), out = sizes_[i];
    weights_[i].resize(in * out);
    biases_[i].resize(out);
    const float* table = views[first_view_ + i].rows;
    for (std::size_t o = 0; o < out; ++o) {
      std::memcpy(&weights_[i][o * in], table + o * (in + 1), in * sizeof(float));
      biases_[i][o] = table[o * (in + 1) + in];
    }
    outputs_[i].resize(rows * out);
    kernels::LinearForward({rows, in, out}, i == 0 ? x : outputs_[i - 1].data(), weights_[i].data(), biases_[i].data(),
                           Relu(i), outputs_[i].data());
  }
  return outputs_.back().data();
}

void LayerStack::Backward(std::size_t rows, const float* x, float* dy, float* dx, std::span<const TableView> views) {
  for (std::size_t i = sizes_.size(); i-- > 0;) {
    const std::size_t in = Inputs(i), out = sizes_[i];
    grad_weights_.resize(in * out);
    grad_bias_.resize(out);
    float* below = dx;
    if (i > 0) {
      gradients_[i - 1].resize(rows * in);
      below = gradients_[i - 1].data();
    }
    kernels::LinearBackward({rows, in, out}, i == 0 ? x : outputs_[i - 1].data(), weights_[i].data(),
                            outputs_[i].data(), Relu(i), dy, below, grad_weights_.data(), grad_bias_.data());
    float* table = views[first_view_ + i].gradients;
    for (std::size_t o = 0; o < out; ++o) {
      std::memcpy(table + o * (in + 1), &grad_weights_[o * in], in * sizeof(float));
      table[o * (in + 1) + in] = grad_bias_[o];
    }
    dy = below;
  }
}

Status CheckLayers(const std::string& name, std::uint32_t in, const std::vector<std::uint32_t>& sizes) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::uint32_t inputs = i == 0 ? in : sizes[i - 1];
    if (inputs + 1 > limits::kRowDimMax)
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("layer {}.{} has {} inputs; a row holds at most {} values: use fewer fields, a smaller "
                              "model.embedding_dim or narrower layers",
                              name, i, inputs, limits::kRowDimMax - 1));
  }
  return {};
}

void ScoreBinary(const StepInput& input, const float* logits, float* grad_logits, QualityTally* quality) {
  const Batch& batch = *input.batch;
  kernels::LogisticLoss(batch.rows, logits, batch.labels.data(), input.scale, grad_logits);
  for (std::size_t r = 0; r < batch.rows; ++r) quality->AddBinary(logits[r], batch.labels[r] > 0.5f);
}

}  // namespace tarn::worker
