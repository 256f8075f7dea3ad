#include "bench/gpu_bench/models.h"

#include "kernels/interaction.h"

namespace tarn::bench {
namespace {

// Appends a stack of layers with ReLU to `layers`. `reads_data`: the first layer reads data; else it reads an output
// without ReLU. Returns the width of the stack's output.
std::uint32_t AddStack(std::uint32_t in, const std::vector<std::uint32_t>& sizes, bool reads_data,
                       std::vector<Layer>* layers) {
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    layers->push_back(
        {.in = in, .out = sizes[i], .relu = true, .above_relu = i > 0, .reads_data = reads_data && i == 0});
    in = sizes[i];
  }
  return in;
}

}  // namespace

ModelSection ShapeOf(ModelKind kind, std::uint32_t dim) {
  ModelSection model{.kind = kind, .embedding_dim = dim};
  model.bottom = {512, 256};
  model.hidden = {1024, 1024, 512, 256};
  model.cross_layers = 3;
  model.cross_rank = 512;
  return model;
}

std::vector<ModelLayers> LayersOf(const Sizes& sizes) {
  const ModelSection shape = ShapeOf(ModelKind::kDcnV2, sizes.dim);
  std::vector<std::uint32_t> bottom = shape.bottom;
  bottom.push_back(sizes.dim);
  ModelLayers dlrm{.name = "dlrm"}, dcn{.name = "dcn_v2"};
  AddStack(kDenseColumns, bottom, true, &dlrm.layers);
  AddStack(static_cast<std::uint32_t>(kernels::InteractionWidth(sizes.fields + 1, sizes.dim)), shape.hidden, false,
           &dlrm.layers);
  AddStack(kDenseColumns, bottom, true, &dcn.layers);
  const std::uint32_t width = (sizes.fields + 1) * sizes.dim;
  for (std::uint32_t i = 0; i < shape.cross_layers; ++i) {
    dcn.layers.push_back({.in = width, .out = shape.cross_rank, .bias = false});
    dcn.layers.push_back({.in = shape.cross_rank, .out = width});
  }
  AddStack(width, shape.hidden, false, &dcn.layers);
  return {dlrm, dcn};
}

}  // namespace tarn::bench
