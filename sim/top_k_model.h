// An independent model of a top-k worker's pushes to the oracle table (rule W5): sorts, and uses counts instead of
// rows. Shares only ResidualRowsMax with the worker.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/table/table_spec.h"

namespace tarn::sim {

// The residual of a key, and the clock of its last gradient.
struct ResidualCount {
  Key key = 0;
  Clock clock;
  float count = 0;
  friend bool operator==(const ResidualCount&, const ResidualCount&) = default;
};

class TopKModel {
 public:
  explicit TopKModel(TableSpec spec) : spec_(std::move(spec)) {}
  void Start(std::vector<ResidualCount> residuals) { residuals_ = std::move(residuals); }
  // Returns the part of a push of distinct keys with these counts that is sent; the rest becomes residuals.
  std::map<Key, float> Push(std::span<const Key> keys, std::vector<float> counts, Clock clock);
  // Residuals, the longest without a gradient first.
  const std::vector<ResidualCount>& residuals() const { return residuals_; }

 private:
  float Take(Key key);

  TableSpec spec_;
  std::vector<ResidualCount> residuals_;
};

}  // namespace tarn::sim
