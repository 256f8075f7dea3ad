// What workers that send the largest rows alone have kept of the oracle table, by incarnation and clock; and what a
// checkpoint has of the ranks that continue from it.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "core/types.h"
#include "sim/top_k_model.h"

namespace tarn::sim {

class KeptStates {
 public:
  // A checkpoint has this of a rank. It is taken once: a worker that takes another's place begins with nothing.
  void Put(WorkerRank rank, std::vector<KeptCount> kept) { restored_[rank] = std::move(kept); }
  std::vector<KeptCount> Take(WorkerRank rank) { return std::exchange(restored_[rank], {}); }

  // A worker has this from its clock on.
  void OnKept(Incarnation worker, Clock clock, std::vector<KeptCount> kept) { kept_[worker][clock] = std::move(kept); }
  // What it had at a clock; null: not known.
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
