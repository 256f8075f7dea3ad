// Directories of checkpoints to remove, and when: those of abandoned cuts when no shard can write to them; those of
// replaced checkpoints at once or, if the run has a state on disk, when that state lists them as outdated.
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
  // `has_state`: the run has a state on disk (durability "log"). The store outlives this object.
  CheckpointRemoval(bool has_state, SchedulerStore* store) : has_state_(has_state), store_(store) {}
  // Restores the list from the state of an earlier start. The directories are kept until the first state of this start
  // is durable: the state that was read may be only in the page cache, and after a power failure an older state, which
  // needs them, may be on disk.
  void Restore(const SchedulerState& state);
  // The directories that a state must list: outdated ones, and those that the store is removing.
  std::vector<std::string> Outdated() const;

  // Adds the directory of an abandoned cut, which no view from `since` on orders. Ignores an empty name.
  void Abandon(CheckpointId id, std::string directory, ViewVersion since);
  // Removes the abandoned cuts to which no shard may still write.
  void RemoveAbandoned(const Shards& shards);
  // Removes all abandoned cuts at the end of the run, when no shard writes.
  void RemoveAllAbandoned();

  // Removes checkpoints that newer ones replace: at once or, if the run has a state, when a state that lists them is
  // durable.
  void Replace(const std::vector<std::string>& directories);
  // Events of the write of a state that lists the outdated directories: begun, durable, failed.
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
  std::size_t being_written_ = 0;  // length of the prefix of outdated_ that the state being written lists
};

}  // namespace tarn::scheduler
