// The residuals of top-k workers for the oracle table, by incarnation and clock; and those in a checkpoint for the
// ranks that continue from it.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/types.h"
#include "sim/top_k_model.h"

namespace tarn::sim {

class ResidualStates {
 public:
  // Sets the residuals of a rank in a checkpoint. They are taken once: a worker that replaces another starts without
  // residuals.
  void Put(WorkerRank rank, std::vector<ResidualCount> residuals) { restored_[rank] = std::move(residuals); }
  std::vector<ResidualCount> Take(WorkerRank rank) { return std::exchange(restored_[rank], {}); }

  // Sets the residuals of a worker from this clock on.
  void OnResiduals(Incarnation worker, Clock clock, std::vector<ResidualCount> residuals) {
    residuals_[worker][clock] = std::move(residuals);
  }
  // The residuals of a worker at a clock; null: unknown.
  const std::vector<ResidualCount>* At(Incarnation worker, Clock clock) const {
    const auto known = residuals_.find(worker);
    if (known == residuals_.end()) return nullptr;
    const auto after = known->second.upper_bound(clock);
    return after == known->second.begin() ? nullptr : &std::prev(after)->second;
  }

 private:
  std::map<WorkerRank, std::vector<ResidualCount>> restored_;
  std::map<Incarnation, std::map<Clock, std::vector<ResidualCount>>> residuals_;
};

}  // namespace tarn::sim
