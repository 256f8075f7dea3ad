#include "worker/models/layers.h"

#include <fmt/format.h>

#include <cmath>
#include <type_traits>
#include <utility>

#include "core/limits.h"

namespace tarn::worker {
namespace {

TableSpec BaseSpec(const Job& job, const std::string& name, const OptimizerSpec& optimizer) {
  TableSpec spec;
  spec.name = name;
  spec.optimizer = optimizer;
  return AsRun(job, std::move(spec));
}

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

void LinearTerm(Compute& compute, const BatchView& batch, const TableView& table, float* logits) {
  compute.BagForward(batch, 1, table, logits);
  compute.BiasForward(batch, table, logits);
}

void LinearTermBackward(Compute& compute, const BatchView& batch, const float* grad_logits, const TableView& table) {
  compute.BagBackward(batch, 1, grad_logits, table);
  compute.BiasBackward(batch, grad_logits, table);
}

DenseLayer MakeDenseLayer(const Job& job, const std::string& name, std::uint32_t in, std::uint32_t out,
                          DenseLayer::Options options, std::vector<TableUse>* tables) {
  const DenseLayer layer{.view = tables->size(), .in = in, .out = out, .options = options};
  TableUse use{BaseSpec(job, name, job.optimizer.dense), RowsNeeded::kAll};
  use.spec.kind = TableKind::kDense;
  use.spec.rows = out;
  use.spec.dim = layer.row_floats();
  const float reach = 1.0f / std::sqrt(static_cast<float>(in));
  use.spec.initializer = {InitializerKind::kUniform, -reach, reach};
  tables->push_back(use);
  return layer;
}

std::vector<DenseLayer> MakeDenseLayers(const Job& job, const std::string& name, std::uint32_t in,
                                        const std::vector<std::uint32_t>& sizes, bool relu_last,
                                        std::vector<TableUse>* tables) {
  std::vector<DenseLayer> layers;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const bool relu = relu_last || i + 1 < sizes.size();
    layers.push_back(MakeDenseLayer(job, fmt::format("{}.{}", name, i), in, sizes[i], {.relu = relu}, tables));
    in = sizes[i];
  }
  return layers;
}

LayerStack::LayerStack(const Job& job, std::vector<DenseLayer> layers)
    : layers_(std::move(layers)),
      precision_(job.train.precision),
      recompute_(job.train.recompute),
      kept_(layers_.size()) {}

kernels::LinearShape LayerStack::ShapeOf(const Compute& compute, std::size_t rows, const DenseLayer& layer) const {
  return {rows, compute.Padded(layer.in), compute.Padded(layer.out), precision_};
}

namespace {

// x in the layout and element type of matrix products; x itself if it needs no change.
template <typename T>
const T* PadRows(Compute& compute, Precision precision, std::size_t rows, std::size_t columns, const float* x) {
  const std::size_t padded = compute.Padded(columns);
  if constexpr (std::is_same_v<T, float>)
    if (padded == columns) return x;
  T* padded_x = compute.Get<T>(rows * padded);
  compute.Pad(precision, rows, columns, x, columns, padded_x, rows, padded);
  return padded_x;
}

// The same for the weights in a layer's table, and for its biases; null if the layer has no bias.
template <typename T>
const T* PadWeights(Compute& compute, const kernels::LinearShape& shape, const DenseLayer& layer, const float* table) {
  T* w = compute.Get<T>(shape.out * shape.in);
  compute.Pad(shape.precision, layer.out, layer.in, table, layer.row_floats(), w, shape.out, shape.in);
  return w;
}

template <typename T>
const T* PadBias(Compute& compute, const kernels::LinearShape& shape, const DenseLayer& layer, const float* table) {
  if (!layer.options.bias) return nullptr;
  T* bias = compute.Get<T>(shape.out);
  compute.Pad(shape.precision, layer.out, 1, table + layer.in, layer.row_floats(), bias, shape.out, 1);
  return bias;
}

}  // namespace

template <typename T>
void LayerStack::Run(Compute& compute, std::size_t rows, const float* x, float* y, std::span<const TableView> views) {
  const T* in = PadRows<T>(compute, precision_, rows, layers_.front().in, x);
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const DenseLayer& layer = layers_[i];
    const kernels::LinearShape shape = ShapeOf(compute, rows, layer);
    const float* table = views[layer.view].rows;
    const T* w = PadWeights<T>(compute, shape, layer, table);
    kept_[i] = {.x = in, .w = w};
    if (i + 1 < layers_.size()) {
      T* out = compute.Get<T>(rows * shape.out);
      if (layer.options.relu) kept_[i].mask = compute.GetMask(rows, shape.out);
      const T* bias = PadBias<T>(compute, shape, layer, table);
      compute.LinearForward(shape, in, w, bias, layer.options.relu, out, kept_[i].mask);
      in = out;
    } else if (y != nullptr) {
      float* wide = shape.out == layer.out ? y : compute.Get<float>(rows * shape.out);
      const float* bias = PadBias<float>(compute, shape, layer, table);
      compute.LinearToFloats(shape, in, w, bias, layer.options.relu, wide);
      if (wide != y) compute.CopyColumns(rows, layer.out, wide, shape.out, y, layer.out);
    }
  }
}

void LayerStack::RunAs(Compute& compute, std::size_t rows, const float* x, float* y, std::span<const TableView> views) {
  if (compute.SixteenBits(precision_))
    Run<std::uint16_t>(compute, rows, x, y, views);
  else
    Run<float>(compute, rows, x, y, views);
}

float* LayerStack::RunForward(Compute& compute, std::size_t rows, const float* x, bool keep,
                              std::span<const TableView> views) {
  float* y = compute.Get<float>(rows * layers_.back().out);
  const Workspace::Mark mark = compute.memory().mark();
  RunAs(compute, rows, x, y, views);
  if (!keep) compute.memory().Release(mark);
  has_kept_ = keep;
  output_ = y;
  return y;
}

float* LayerStack::Forward(Compute& compute, std::size_t rows, const float* x, std::span<const TableView> views) {
  return RunForward(compute, rows, x, !recompute_, views);
}

float* LayerStack::ForwardAgain(Compute& compute, std::size_t rows, const float* x, std::span<const TableView> views) {
  return RunForward(compute, rows, x, true, views);
}

template <typename T>
void LayerStack::RunBackward(Compute& compute, std::size_t rows, const float* dy, float* dx,
                             std::span<const TableView> views) {
  const T* above = PadRows<T>(compute, precision_, rows, layers_.back().out, dy);
  for (std::size_t i = layers_.size(); i-- > 0;) {
    const DenseLayer& layer = layers_[i];
    const kernels::LinearShape shape = ShapeOf(compute, rows, layer);
    const bool x_relu = i > 0 && layers_[i - 1].options.relu;
    T* below = nullptr;
    if constexpr (std::is_same_v<T, float>)
      if (i == 0 && shape.in == layer.in) below = dx;
    if (below == nullptr && (i > 0 || dx != nullptr)) below = compute.Get<T>(rows * shape.in);
    const Workspace::Mark mark = compute.memory().mark();
    float* dw = compute.Get<float>(shape.out * shape.in);
    float* dbias = layer.options.bias ? compute.Get<float>(shape.out) : nullptr;
    compute.LinearBackward<T>(shape,
                              {.x = static_cast<const T*>(kept_[i].x),
                               .w = static_cast<const T*>(kept_[i].w),
                               .dy = above,
                               .dw = dw,
                               .dbias = dbias,
                               .dx = below,
                               .x_mask = i > 0 ? kept_[i - 1].mask : nullptr},
                              x_relu);
    float* table = views[layer.view].gradients;
    compute.AddColumns(layer.out, layer.in, dw, shape.in, table, layer.row_floats());
    if (dbias != nullptr) compute.AddColumns(layer.out, 1, dbias, 1, table + layer.in, layer.row_floats());
    compute.memory().Release(mark);
    above = below;
  }
  if (above != nullptr && static_cast<const void*>(above) != dx)
    compute.Unpad(precision_, rows, layers_.front().in, above, compute.Padded(layers_.front().in), dx);
}

void LayerStack::Backward(Compute& compute, std::size_t rows, const float* x, float* dy, float* dx,
                          std::span<const TableView> views) {
  const Workspace::Mark mark = compute.memory().mark();
  const DenseLayer& last = layers_.back();
  if (!has_kept_) RunAs(compute, rows, x, nullptr, views);
  if (last.options.relu) compute.ReluBackward(rows * last.out, output_, dy);
  if (compute.SixteenBits(precision_))
    RunBackward<std::uint16_t>(compute, rows, dy, dx, views);
  else
    RunBackward<float>(compute, rows, dy, dx, views);
  compute.memory().Release(mark);
}

namespace {

constexpr std::uint32_t kInputsMax = limits::kRowDimMax - 1;

}  // namespace

Status CheckInputs(const std::string& layer, std::uint32_t in) {
  if (in <= kInputsMax) return {};
  return Fail(ErrorCode::kInvalidArgument, fmt::format("layer {} has {} inputs, expected at most {} (one row holds a "
                                                       "weight per input and a bias): use fewer columns or a smaller "
                                                       "model.embedding_dim",
                                                       layer, in, kInputsMax));
}

Status CheckLayers(const std::string& name, std::uint32_t in, std::string_view key,
                   const std::vector<std::uint32_t>& units) {
  TARN_RETURN_IF_ERROR(CheckInputs(name + ".0", in));
  for (std::size_t i = 0; i < units.size(); ++i)
    if (units[i] > kInputsMax)
      return Fail(ErrorCode::kInvalidArgument, fmt::format("{}[{}] = {}: layer {}.{} would have {} inputs, expected at "
                                                           "most {} (one row holds a weight per input and a bias)",
                                                           key, i, units[i], name, i + 1, units[i], kInputsMax));
  return {};
}

std::vector<std::uint32_t> With(std::vector<std::uint32_t> sizes, std::uint32_t last) {
  sizes.push_back(last);
  return sizes;
}

}  // namespace tarn::worker
