// The parts of gpu_bench. Each prints its figures (bench/data_plane/measure.h) as they come; bench/README.md says what
// they are.
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
  std::uint32_t fields = 26, dim = 128;     // keys of a row, and their embeddings
  std::uint64_t field_keys = 1'000'000;     // different keys of a field
  double skew = 1.05;                       // of the keys: Zipf's exponent
  std::size_t optimizer_rows = 524'288;     // of a step
  std::uint64_t hot_rows = 64'000'000;      // of the cache, of 64 values each
  std::uint32_t hot_keys = 1'000'000;       // that are looked for at once
  std::size_t limit_bytes = 2'000'000'000;  // of the copy
  std::size_t limit_extent = 16'384;        // of the largest matrix product
};

struct Run {
  Place& place;
  Limits& limits;
  const Sizes& sizes;
  const Timing& timing;

  void Tell(std::string name, double value, std::string unit, std::vector<Setting> settings,
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
// DLRM and DCN v2: all rows in the cache.
void MeasureSteps(const Run& run);

// Keys of a batch, field by field of each row, of a power law; equal ranks of two fields are different keys, and order
// says nothing of rank. `seed`: another batch.
std::vector<Key> MakeKeys(const Sizes& sizes, std::uint64_t seed);
// 0 ... n-1 in random order.
std::vector<std::uint32_t> Permutation(std::size_t n);

}  // namespace tarn::bench
