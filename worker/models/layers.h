// Parts that models share: the linear term, embeddings, and stacks of fully connected layers over dense tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/job/job.h"
#include "worker/models/model.h"

namespace tarn::worker {

// Table "linear": one weight a key, and the bias. Starts at zero.
TableUse LinearTable(const Job& job);
// Table "embedding": job.model.embedding_dim values a key, N(0, init_stddev).
TableUse EmbeddingTable(const Job& job);

// logits[r] = bias + sum of weights[o] * linear[o] over the row's occurrences; overwrites.
void LinearTerm(Compute& compute, const BatchView& batch, const TableView& table, float* logits);
void LinearTermBackward(Compute& compute, const BatchView& batch, const float* grad_logits, const TableView& table);

// One fully connected layer: a dense table of `out` rows, each the weights of an output and, with a bias, that last.
struct DenseLayer {
  struct Options {
    bool bias = true;
    bool relu = false;
  };

  std::size_t view = 0;  // the table's place among a model's
  std::uint32_t in = 0, out = 0;
  Options options;

  std::uint32_t row_floats() const { return in + (options.bias ? 1 : 0); }
};

// A layer and its table `name`, appended to `tables`; all values start uniform in +-1/sqrt(in).
DenseLayer MakeDenseLayer(const Job& job, const std::string& name, std::uint32_t in, std::uint32_t out,
                          DenseLayer::Options options, std::vector<TableUse>* tables);

// The layers in -> sizes[0] -> ... -> sizes[n-1], ReLU after each but, unless relu_last, the last. Layer i is named
// "<name>.<i>".
std::vector<DenseLayer> MakeDenseLayers(const Job& job, const std::string& name, std::uint32_t in,
                                        const std::vector<std::uint32_t>& sizes, bool relu_last,
                                        std::vector<TableUse>* tables);

// Layers one behind the other. On a GPU, with bf16 and fp16, activations between them are held in 16 bits; what goes in
// and what comes out is fp32. With train.recompute nothing in between is kept for the backward pass.
class LayerStack {
 public:
  // At least one layer.
  LayerStack(const Job& job, std::vector<DenseLayer> layers);

  // x: rows x in, which must live until Backward. Returns rows x out of the compute's memory.
  float* Forward(Compute& compute, std::size_t rows, const float* x, std::span<const TableView> views);
  // The same for a Backward that follows at once: what it needs is kept, whatever train.recompute says, for as long as
  // the caller keeps the compute's memory.
  float* ForwardAgain(Compute& compute, std::size_t rows, const float* x, std::span<const TableView> views);
  // dy: rows x out, changed in place. dx: rows x in, or null; overwritten. Adds to the gradients of the views.
  void Backward(Compute& compute, std::size_t rows, const float* x, float* dy, float* dx,
                std::span<const TableView> views);

 private:
  // What the backward pass needs of a layer: elements of the kind that the pass has.
  struct Kept {
    const void *x = nullptr, *w = nullptr;
    std::uint32_t* mask = nullptr;  // of its output
  };

  float* RunForward(Compute& compute, std::size_t rows, const float* x, bool keep, std::span<const TableView> views);
  // Of x, all layers' inputs and, unless null, the output.
  template <typename T>
  void Run(Compute& compute, std::size_t rows, const float* x, float* y, std::span<const TableView> views);
  template <typename T>
  void RunBackward(Compute& compute, std::size_t rows, const float* dy, float* dx, std::span<const TableView> views);
  void RunAs(Compute& compute, std::size_t rows, const float* x, float* y, std::span<const TableView> views);
  kernels::LinearShape ShapeOf(const Compute& compute, std::size_t rows, const DenseLayer& layer) const;

  std::vector<DenseLayer> layers_;
  Precision precision_;
  bool recompute_;
  std::vector<Kept> kept_;  // since Run
  bool has_kept_ = false;   // it is in the compute's memory still
  const float* output_ = nullptr;
};

// Checks that a layer's row, an input each and a bias, fits limits::kRowDimMax.
Status CheckInputs(const std::string& layer, std::uint32_t in);
// The same for the layers "<name>.<i>": in -> units[0] -> ... -> units[n-1] -> an output. `key` names units in the job.
Status CheckLayers(const std::string& name, std::uint32_t in, std::string_view key,
                   const std::vector<std::uint32_t>& units);

// `sizes`, and one more behind them.
std::vector<std::uint32_t> With(std::vector<std::uint32_t> sizes, std::uint32_t last);

}  // namespace tarn::worker
