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

// One fully connected layer: the dense table `name` of `out` rows, each the weights of an output and, last, its bias.
// Both start uniform in +-1/sqrt(in).
class DenseLayer {
 public:
  struct Options {
    bool bias = true;  // false: the rows hold no bias
    bool relu = false;
  };

  // Appends its table to `tables`; it is the view at that place of a step from then on.
  DenseLayer(const Job& job, const std::string& name, std::uint32_t in, std::uint32_t out, Options options,
             std::vector<TableUse>* tables);

  // x: rows x in. Returns rows x out, valid until the next call. x must live until Backward.
  const float* Forward(std::size_t rows, const float* x, std::span<const TableView> views);
  // dy: rows x out, changed in place. dx: rows x in, or null; overwritten. Writes gradients into the view.
  void Backward(std::size_t rows, const float* x, float* dy, float* dx, std::span<const TableView> views);

  std::uint32_t out() const { return out_; }

 private:
  std::size_t RowFloats() const { return std::size_t{in_} + (options_.bias ? 1 : 0); }

  std::uint32_t in_, out_;
  Options options_;
  Precision precision_;
  std::size_t view_;
  std::vector<float> weights_, bias_, output_, grad_weights_, grad_bias_;
};

// Layers in -> sizes[0] -> ... -> sizes[n-1], ReLU after each but, unless relu_last, the last. Layer i is named
// "<name>.<i>".
class LayerStack {
 public:
  LayerStack(const Job& job, const std::string& name, std::uint32_t in, const std::vector<std::uint32_t>& sizes,
             bool relu_last, std::vector<TableUse>* tables);

  // As of DenseLayer. sizes must not have been empty.
  const float* Forward(std::size_t rows, const float* x, std::span<const TableView> views);
  void Backward(std::size_t rows, const float* x, float* dy, float* dx, std::span<const TableView> views);

 private:
  std::vector<DenseLayer> layers_;
  std::vector<const float*> inputs_;           // of each layer, since Forward
  std::vector<std::vector<float>> gradients_;  // of each layer's output but the last
};

// Checks that a layer's row (inputs and bias) fits limits::kRowDimMax.
Status CheckLayers(const std::string& name, std::uint32_t in, const std::vector<std::uint32_t>& sizes);

// Logistic loss of a step: predictions into quality, grad_logits (scaled) if not null.
void ScoreBinary(const StepInput& input, const float* logits, float* grad_logits, QualityTally* quality);

}  // namespace tarn::worker
