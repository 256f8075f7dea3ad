// Parts that models share: the linear term, embeddings, and stacks of fully connected layers over dense tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/job.h"
#include "worker/models/model.h"

namespace tarn::worker {

// Table "linear": one weight a key, and the bias. Starts at zero.
TableUse LinearTable(const Job& job);
// Table "embedding": job.model.embedding_dim values a key, N(0, init_stddev).
TableUse EmbeddingTable(const Job& job);

// logits[r] = bias + sum of weights[o] * linear[o] over the row's occurrences; overwrites.
void LinearTerm(const Batch& batch, const TableView& view, float* logits);
void LinearTermBackward(const Batch& batch, const float* grad_logits, const TableView& view);

// Layers in -> sizes[0] -> ... -> sizes[n-1], ReLU after each but, unless relu_last, the last. Layer i is the dense
// table "<name>.<i>" of sizes[i] rows: the weights of an output and, last, its bias. Both start uniform in
// +-1/sqrt(inputs).
class LayerStack {
 public:
  // Appends its tables to `tables`; they are views [first, first + count) of a step from then on.
  LayerStack(const Job& job, const std::string& name, std::uint32_t in, std::vector<std::uint32_t> sizes,
             bool relu_last, std::vector<TableUse>* tables);

  // x: rows x in. Returns rows x sizes.back(), valid until the next call. x must live until Backward.
  float* Forward(std::size_t rows, const float* x, std::span<const TableView> views);
  // dy: rows x sizes.back(), changed in place. dx: rows x in, or null. Writes gradients into the views.
  void Backward(std::size_t rows, const float* x, float* dy, float* dx, std::span<const TableView> views);

 private:
  std::uint32_t Inputs(std::size_t layer) const { return layer == 0 ? in_ : sizes_[layer - 1]; }
  bool Relu(std::size_t layer) const { return relu_last_ || layer + 1 < sizes_.size(); }

  std::uint32_t in_;
  std::vector<std::uint32_t> sizes_;
  bool relu_last_;
  std::size_t first_view_;
  std::vector<std::vector<float>> weights_, biases_, outputs_, gradients_;
  std::vector<float> grad_weights_, grad_bias_;
};

// Checks that a layer's row (inputs and bias) fits limits::kRowDimMax.
Status CheckLayers(const std::string& name, std::uint32_t in, const std::vector<std::uint32_t>& sizes);

// Logistic loss of a step: predictions into quality, grad_logits (scaled) if not null.
void ScoreBinary(const StepInput& input, const float* logits, float* grad_logits, QualityTally* quality);

}  // namespace tarn::worker
