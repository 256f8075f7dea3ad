// The parts of gpu_bench. Each prints its figures (bench/data_plane/measure.h), which bench/README.md describes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "bench/gpu_bench/limits.h"
#include "bench/gpu_bench/place.h"
#include "core/types.h"

namespace tarn::bench {

struct Sizes {
  std::size_t batch = 65'536;               // rows
  std::uint32_t fields = 26, dim = 128;     // keys per row, and values per embedding
  std::uint64_t field_keys = 1'000'000;     // distinct keys per field
  double skew = 1.05;                       // Zipf exponent of the keys
  std::size_t optimizer_rows = 524'288;     // per step
  std::uint64_t hot_rows = 64'000'000;      // rows of 64 values in the cache
  std::uint32_t hot_keys = 1'000'000;       // keys looked up at once
  std::size_t limit_bytes = 2'000'000'000;  // bytes of the copy
  std::size_t limit_extent = 16'384;        // size of the largest matrix product
};

struct Run {
  Place& place;
  Limits& limits;
  const Sizes& sizes;
  const Timing& timing;

  // Prints a figure, with the device among its settings.
  void Report(std::string name, double value, std::string unit, std::vector<Setting> settings,
              std::vector<std::pair<std::string, double>> more = {}) const {
    settings.emplace(settings.begin(), "device", place.name());
    Print({std::move(name), value, std::move(unit), std::move(settings), std::move(more)});
  }
};

void MeasureLimits(const Run& run);
void MeasureEmbedding(const Run& run);
void MeasurePlans(const Run& run);
void MeasureOptimizers(const Run& run);
void MeasureProducts(const Run& run);
void MeasureHotRows(const Run& run);
// Steps of DLRM and DCN v2 whose rows are all in the hot-row cache.
void MeasureSteps(const Run& run);

// The keys of a batch with a power-law distribution, ordered by row and field. Equal ranks in two fields are different
// keys, and the order of keys is independent of rank. `seed` selects the batch.
std::vector<Key> MakeKeys(const Sizes& sizes, std::uint64_t seed);
// 0 ... n-1 in random order.
std::vector<std::uint32_t> Permutation(std::size_t n);

}  // namespace tarn::bench
