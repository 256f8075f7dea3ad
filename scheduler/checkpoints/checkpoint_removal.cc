#include "scheduler/checkpoints/checkpoint_removal.h"

#include <utility>

namespace tarn::scheduler {

void CheckpointRemoval::Restore(const SchedulerState& state) {
  outdated_ = state.outdated;
  if (!state.pending_directory.empty()) outdated_.push_back(state.pending_directory);
}

std::vector<std::string> CheckpointRemoval::Outdated() const {
  std::vector<std::string> all = store_->Removing();
  all.insert(all.end(), outdated_.begin(), outdated_.end());
  return all;
}

void CheckpointRemoval::Abandon(CheckpointId id, std::string directory, ViewVersion since) {
  if (!directory.empty()) abandoned_.push_back({id, std::move(directory), since});
}

void CheckpointRemoval::RemoveAbandoned(const Shards& shards) {
  std::erase_if(abandoned_, [&](const Abandoned& abandoned) {
    if (shards.MayWrite(abandoned.id, abandoned.since)) return false;
    store_->RemoveCheckpoint(abandoned.directory);
    return true;
  });
}

void CheckpointRemoval::RemoveAllAbandoned() {
  for (const Abandoned& abandoned : std::exchange(abandoned_, {})) store_->RemoveCheckpoint(abandoned.directory);
}

void CheckpointRemoval::Replace(const std::vector<std::string>& directories) {
  if (has_state_) {
    outdated_.insert(outdated_.end(), directories.begin(), directories.end());
    return;
  }
  for (const std::string& directory : directories) store_->RemoveCheckpoint(directory);
}

void CheckpointRemoval::OnStateWritten() {
  const auto end = outdated_.begin() + static_cast<std::ptrdiff_t>(std::exchange(being_written_, 0));
  for (auto it = outdated_.begin(); it != end; ++it) store_->RemoveCheckpoint(*it);
  outdated_.erase(outdated_.begin(), end);
}

}  // namespace tarn::scheduler
