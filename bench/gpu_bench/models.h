// The models of gpu_bench, with the shapes of MLPerf's recommendation benchmarks: DLRM (v1) and its successor DCN v2,
// 13 dense columns, embeddings of 128 values. A row of data has one key per field; in MLPerf's DCN v2 it has up to 100
// per field and 214 in total.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/gpu_bench/parts.h"
#include "core/job/job.h"

namespace tarn::bench {

inline constexpr std::uint32_t kDenseColumns = 13;

// The shape of dlrm or dcn_v2.
ModelSection ShapeOf(ModelKind kind, std::uint32_t dim);

// A fully connected layer with at least two outputs.
struct Layer {
  std::uint32_t in = 0, out = 0;
  bool relu = false, bias = true;
  bool above_relu = false;  // its inputs come from a ReLU
  bool reads_data = false;  // its inputs are data, so their gradient is not needed
  friend auto operator<=>(const Layer&, const Layer&) = default;
};
struct ModelLayers {
  std::string name;
  std::vector<Layer> layers;
};
// The layers of both models.
std::vector<ModelLayers> LayersOf(const Sizes& sizes);

}  // namespace tarn::bench
