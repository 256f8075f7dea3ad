// Directories of checkpoints that are to be removed, and when: those of cuts that were given up once no shard writes
// into them any more, and those that newer checkpoints replace once the state on disk no longer names them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/types.h"
#include "scheduler/membership/shards.h"
#include "scheduler/state/store.h"

namespace tarn::scheduler {

class CheckpointRemoval {
 public:
  // has_state: the run keeps a state on disk (durability "log"). The store outlives it.
  CheckpointRemoval(bool has_state, SchedulerStore* store) : has_state_(has_state), store_(store) {}
  // What the state of an earlier start listed. Its directories stay until the first state of this start is on disk:
  // what was read may come from the page cache alone, and a state that a loss of power brings back may need them.
  void Restore(const SchedulerState& state);
  // What a state has to list: outdated ones, and those that the store is removing.
  std::vector<std::string> Outdated() const;

  // The cut was given up; no view from `since` on orders it.
  void Abandon(CheckpointId id, std::string directory, ViewVersion since);
  void RemoveAbandoned(const Shards& shards);
  // The run is over: nobody writes any more.
  void RemoveAllAbandoned();

  // Newer checkpoints replace these.
  void Replace(const std::vector<std::string>& directories);
  // A state that lists what is outdated now is being written; it is on disk; it could not be written.
  void OnStateBegun() { being_written_ = outdated_.size(); }
  void OnStateWritten();
  void OnStateFailed() { being_written_ = 0; }

 private:
  struct Abandoned {
    CheckpointId id;
    std::string directory;
    ViewVersion since;
  };

  bool has_state_;
  SchedulerStore* store_;
  std::vector<Abandoned> abandoned_;
  std::vector<std::string> outdated_;
  std::size_t being_written_ = 0;  // of outdated_, the first that the state being written lists
};

}  // namespace tarn::scheduler
