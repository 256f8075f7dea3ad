// What a worker that sends the largest rows alone sends of its pushes to the oracle table, worked out by hand (rule
// W5): sorting, and counts in place of rows. Shares nothing with the worker.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/table/table_spec.h"

namespace tarn::sim {

// What is kept of a key, and the clock of its last gradient.
struct KeptCount {
  Key key = 0;
  Clock clock;
  float count = 0;
  friend bool operator==(const KeptCount&, const KeptCount&) = default;
};

class TopKModel {
 public:
  explicit TopKModel(TableSpec spec) : spec_(std::move(spec)) {}
  void Start(std::vector<KeptCount> kept) { kept_ = std::move(kept); }
  // What goes out of a push of keys, none twice, with these counts.
  std::map<Key, float> Push(std::span<const Key> keys, std::vector<float> counts, Clock clock);
  // The longest without a gradient first.
  const std::vector<KeptCount>& kept() const { return kept_; }

 private:
  float Take(Key key);

  TableSpec spec_;
  std::vector<KeptCount> kept_;
};

}  // namespace tarn::sim
