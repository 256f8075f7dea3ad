// The oracle's record of programs with state: the state of each simulated worker at each of its ticks, and the states
// in the checkpoint from which a fleet resumes. The state of a program is the number of its batches, so a state from a
// wrong clock has a wrong number.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <utility>

#include "core/buffer.h"
#include "core/types.h"

namespace tarn::sim {

struct ProgramState {
  std::uint64_t clock = 0;    // of the tick at which it is saved
  std::uint64_t batches = 0;  // trained by this process
  // Of the last batch: its epoch, the first row of its lease, and the number of rows of the lease up to its end.
  std::uint64_t epoch = 0, first_row = 0, rows = 0;
  friend bool operator==(const ProgramState&, const ProgramState&) = default;
};

class ProgramStates {
 public:
  // Sets the state of a worker from the tick to state.clock on.
  void OnTick(Incarnation worker, const ProgramState& state) { ticks_[worker][state.clock] = state; }
  // The state at a clock: that of the last tick up to it; null: the worker had not begun.
  const ProgramState* At(Incarnation worker, Clock clock) const {
    const auto known = ticks_.find(worker);
    if (known == ticks_.end()) return nullptr;
    const auto after = known->second.upper_bound(clock.value);
    return after == known->second.begin() ? nullptr : &std::prev(after)->second;
  }

  // The bytes in the checkpoint from which the fleet continues.
  void PutSaved(WorkerRank rank, Buffer bytes) { saved_[rank] = std::move(bytes); }
  Buffer Saved(WorkerRank rank) const {
    const auto found = saved_.find(rank);
    return found == saved_.end() ? Buffer() : found->second;
  }

 private:
  std::map<Incarnation, std::map<std::uint64_t, ProgramState>> ticks_;
  std::map<WorkerRank, Buffer> saved_;
};

}  // namespace tarn::sim
