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
  if (auto it = job.tables.find(name); it != job.tables.end()) ApplyOverride(it->second, &spec);
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

DenseLayer::DenseLayer(const Job& job, const std::string& name, std::uint32_t in, std::uint32_t out, Options options,
                       std::vector<TableUse>* tables)
    : in_(in), out_(out), options_(options), precision_(job.train.precision), view_(tables->size()) {
  TableUse use{BaseSpec(job, name, job.optimizer.dense), RowsNeeded::kAll};
  use.spec.kind = TableKind::kDense;
  use.spec.rows = out;
  use.spec.dim = static_cast<std::uint32_t>(RowFloats());
  const float reach = 1.0f / std::sqrt(static_cast<float>(in));
  use.spec.initializer = {InitializerKind::kUniform, -reach, reach};
  tables->push_back(use);
  weights_.resize(std::size_t{in} * out);
  bias_.resize(options.bias ? out : 0);
}

const float* DenseLayer::Forward(std::size_t rows, const float* x, std::span<const TableView> views) {
  const float* table = views[view_].rows;
  for (std::size_t o = 0; o < out_; ++o) {
    std::memcpy(&weights_[o * in_], table + o * RowFloats(), in_ * sizeof(float));
    if (options_.bias) bias_[o] = table[o * RowFloats() + in_];
  }
  output_.resize(rows * out_);
  kernels::LinearForward({rows, in_, out_, precision_}, x, weights_.data(), options_.bias ? bias_.data() : nullptr,
                         options_.relu, output_.data());
  return output_.data();
}

void DenseLayer::Backward(std::size_t rows, const float* x, float* dy, float* dx, std::span<const TableView> views) {
  grad_weights_.resize(std::size_t{in_} * out_);
  grad_bias_.resize(bias_.size());
  kernels::LinearBackward({rows, in_, out_, precision_}, x, weights_.data(), output_.data(), options_.relu, dy, dx,
                          grad_weights_.data(), options_.bias ? grad_bias_.data() : nullptr);
  float* table = views[view_].gradients;
  for (std::size_t o = 0; o < out_; ++o) {
    std::memcpy(table + o * RowFloats(), &grad_weights_[o * in_], in_ * sizeof(float));
    if (options_.bias) table[o * RowFloats() + in_] = grad_bias_[o];
  }
}

LayerStack::LayerStack(const Job& job, const std::string& name, std::uint32_t in,
                       const std::vector<std::uint32_t>& sizes, bool relu_last, std::vector<TableUse>* tables) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool relu = relu_last || i + 1 < sizes.size();
    layers_.emplace_back(job, fmt::format("{}.{}", name, i), in, sizes[i], DenseLayer::Options{.relu = relu}, tables);
    in = sizes[i];
  }
  inputs_.resize(layers_.size());
  gradients_.resize(layers_.size() - 1);
}

const float* LayerStack::Forward(std::size_t rows, const float* x, std::span<const TableView> views) {
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    inputs_[i] = x;
    x = layers_[i].Forward(rows, x, views);
  }
  return x;
}

void LayerStack::Backward(std::size_t rows, const float* x, float* dy, float* dx, std::span<const TableView> views) {
  for (std::size_t i = layers_.size(); i-- > 0;) {
    float* below = dx;
    if (i > 0) {
      gradients_[i - 1].resize(rows * layers_[i - 1].out());
      below = gradients_[i - 1].data();
    }
    layers_[i].Backward(rows, i == 0 ? x : inputs_[i], dy, below, views);
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
