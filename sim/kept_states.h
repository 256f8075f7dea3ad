// The residuals of top-k workers for the oracle table, by incarnation and clock; and those in a checkpoint for the
// ranks that continue from it.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/types.h"
#include "sim/top_k_model.h"

namespace tarn::sim {

class KeptStates {
 public:
  // Sets the residuals of a rank in a checkpoint. They are taken once: a worker that replaces another starts without
  // residuals.
  void Put(WorkerRank rank, std::vector<KeptCount> kept) { restored_[rank] = std::move(kept); }
  std::vector<KeptCount> Take(WorkerRank rank) { return std::exchange(restored_[rank], {}); }

  // Sets the residuals of a worker from this clock on.
  void OnKept(Incarnation worker, Clock clock, std::vector<KeptCount> kept) { kept_[worker][clock] = std::move(kept); }
  // The residuals of a worker at a clock; null: unknown.
  const std::vector<KeptCount>* At(Incarnation worker, Clock clock) const {
    const auto known = kept_.find(worker);
    if (known == kept_.end()) return nullptr;
    const auto after = known->second.upper_bound(clock);
    return after == known->second.begin() ? nullptr : &std::prev(after)->second;
  }

 private:
  std::map<WorkerRank, std::vector<KeptCount>> restored_;
  std::map<Incarnation, std::map<Clock, std::vector<KeptCount>>> kept_;
};

}  // namespace tarn::sim
