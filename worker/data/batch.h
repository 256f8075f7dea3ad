// A batch of training rows in memory, made by readers and used by models.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/types.h"

namespace tarn::worker {

// Sparse features come as CSR: row r has keys[offsets[r] .. offsets[r+1]). Field-based sets (Criteo format) have the
// same number of keys in each row, `fields`, key j of a row belonging to field j; libsvm sets have fields == 0 and as
// many keys as the line has; idx sets have no keys. A key contains its column and value (worker/data/keys.h).
struct Batch {
  std::size_t rows = 0;
  std::uint32_t fields = 0;         // keys per row; 0: it varies
  std::uint32_t dense_columns = 0;  // floats per row in `dense`
  std::vector<float> labels;        // rows: 0/1, or the class number
  std::vector<float> dense;         // rows x dense_columns
  std::vector<Key> keys;
  std::vector<std::uint32_t> offsets;  // rows + 1
  std::vector<float> weights;          // empty (all 1), or one per key

  void Clear() {
    rows = 0;
    labels.clear();
    dense.clear();
    keys.clear();
    offsets.assign(1, 0);
    weights.clear();
  }
};

}  // namespace tarn::worker
