// The models that gpu_bench trains, in the shapes of MLPerf's benchmarks of recommendation: DLRM (v1) and DCN v2 (which
// has taken its place), 13 dense columns, embeddings of 128 values. Fields have one key a row; MLPerf's DCN v2 sums up
// to 100 in some of them, 214 in all.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "bench/gpu_bench/parts.h"
#include "core/job/job.h"

namespace tarn::bench {

inline constexpr std::uint32_t kDenseColumns = 13;

// dlrm or dcn_v2.
ModelSection ShapeOf(ModelKind kind, std::uint32_t dim);

// A fully connected layer of at least two outputs.
struct Layer {
  std::uint32_t in = 0, out = 0;
  bool relu = false, bias = true;
  bool above_relu = false;  // its inputs come from a ReLU
  bool inputs = false;      // they are the data's: their gradient is not asked for
  friend auto operator<=>(const Layer&, const Layer&) = default;
};
struct ModelLayers {
  std::string name;
  std::vector<Layer> layers;
};
std::vector<ModelLayers> LayersOf(const Sizes& sizes);

}  // namespace tarn::bench
