// Parts that models share: the linear term, embeddings, and stacks of fully connected layers over dense tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/job.h"
#include "worker/models/model.h"

namespace tarn::worker {

// Table "linear": one weight per key, and the bias. Initially zero.
TableUse LinearTable(const Job& job);
// Table "embedding": job.model.embedding_dim values per key, initially N(0, init_stddev).
TableUse EmbeddingTable(const Job& job);

// logits[r] = bias + sum of weights[o] * linear[o] over the row's occurrences; overwrites.
void LinearTerm(Compute& compute, const BatchView& batch, const TableView& table, float* logits);
void LinearTermBackward(Compute& compute, const BatchView& batch, const float* grad_logits, const TableView& table);

// A fully connected layer: a dense table of `out` rows. A row has the weights of one output, and the bias last, if
// there is one.
struct DenseLayer {
  struct Options {
    bool bias = true;
    bool relu = false;
  };

  std::size_t view = 0;  // index of the table in the model
  std::uint32_t in = 0, out = 0;
  Options options;

  std::uint32_t row_floats() const { return in + (options.bias ? 1 : 0); }
};

// Makes a layer and appends its table `name` to `tables`. Initial values are uniform in +-1/sqrt(in).
DenseLayer MakeDenseLayer(const Job& job, const std::string& name, std::uint32_t in, std::uint32_t out,
                          DenseLayer::Options options, std::vector<TableUse>* tables);

// Makes the layers in -> sizes[0] -> ... -> sizes[n-1], with ReLU after each layer but the last, or after all with
// relu_last. The table of layer i is "<name>.<i>".
std::vector<DenseLayer> MakeDenseLayers(const Job& job, const std::string& name, std::uint32_t in,
                                        const std::vector<std::uint32_t>& sizes, bool relu_last,
                                        std::vector<TableUse>* tables);

// A sequence of layers. On a GPU with bf16 or fp16, activations between layers have 16 bits; input and output are fp32.
// With train.recompute, intermediate activations are not stored for the backward pass.
class LayerStack {
 public:
  // At least one layer.
  LayerStack(const Job& job, std::vector<DenseLayer> layers);

  // x: rows x in, valid until Backward. Returns rows x out, in memory of `compute`.
  float* Forward(Compute& compute, std::size_t rows, const float* x, std::span<const TableView> views);
  // Like Forward, for a Backward that follows at once: stores intermediate activations even with train.recompute. The
  // caller must not release the memory of `compute` in between.
  float* ForwardAgain(Compute& compute, std::size_t rows, const float* x, std::span<const TableView> views);
  // dy: rows x out, changed in place. dx: output, rows x in, or null. Adds to the gradients of the views.
  void Backward(Compute& compute, std::size_t rows, const float* x, float* dy, float* dx,
                std::span<const TableView> views);

 private:
  // What the backward pass needs of a layer: its input and weights, in the element type of the pass.
  struct Kept {
    const void *x = nullptr, *w = nullptr;
    std::uint32_t* mask = nullptr;  // mask of its output
  };

  float* RunForward(Compute& compute, std::size_t rows, const float* x, bool keep, std::span<const TableView> views);
  // Computes all layers' inputs from x and, unless `y` is null, the output.
  template <typename T>
  void Run(Compute& compute, std::size_t rows, const float* x, float* y, std::span<const TableView> views);
  template <typename T>
  void RunBackward(Compute& compute, std::size_t rows, const float* dy, float* dx, std::span<const TableView> views);
  // Calls Run with the element type that the stack's precision requires.
  void RunAs(Compute& compute, std::size_t rows, const float* x, float* y, std::span<const TableView> views);
  kernels::LinearShape ShapeOf(const Compute& compute, std::size_t rows, const DenseLayer& layer) const;

  std::vector<DenseLayer> layers_;
  Precision precision_;
  bool recompute_;
  std::vector<Kept> kept_;  // set by Run
  bool has_kept_ = false;   // kept_ is valid: its memory has not been released
  const float* output_ = nullptr;
};

// Checks that a layer's row (one value per input, and a bias) fits limits::kRowDimMax.
Status CheckInputs(const std::string& layer, std::uint32_t in);
// The same for the layers "<name>.<i>": in -> units[0] -> ... -> units[n-1] -> one output. `key`: the job's key of
// `units`.
Status CheckLayers(const std::string& name, std::uint32_t in, std::string_view key,
                   const std::vector<std::uint32_t>& units);

// `sizes` with `last` appended.
std::vector<std::uint32_t> With(std::vector<std::uint32_t> sizes, std::uint32_t last);

}  // namespace tarn::worker
