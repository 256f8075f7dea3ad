// The SchedulerStore of a real run: checkpoints in a directory on disk. They are removed by a thread of their own: the
// scheduler must not fall silent over gigabytes.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/background.h"
#include "scheduler/scheduler.h"

namespace tarn::scheduler {

class FileStore final : public SchedulerStore {
 public:
  // Removes nothing but ckpt-<number> in `checkpoints_directory`, and its own state in `run_dir`.
  FileStore(std::string run_dir, std::string checkpoints_directory);
  Status WriteManifest(const std::string& directory, const Manifest& manifest) override;
  void RemoveCheckpoint(const std::string& directory) override;
  std::vector<std::string> Removing() const override;
  Status WriteState(const SchedulerState& state) override;
  // Only notes it: a run that is ended by force before its summary is there goes on, and gets one.
  Status RemoveState() override;
  // The summary is there: removes the state if RemoveState was called, and then the shards' logs in the run's folder,
  // from which nobody can go on without it.
  Status Settle();
  // Removes the logs of a run that is over, should it have ended before it had.
  void RemoveOldLogs();
  // Removes checkpoints of the run that are not whole, when all others that are to go are gone. Nobody may be cutting
  // one.
  void RemovePartial();

 private:
  void Remove(const std::string& directory);

  std::string run_dir_;
  std::string root_;
  bool over_ = false;
  mutable std::mutex mutex_;
  std::set<std::string> removing_;
  Background disk_;
};

}  // namespace tarn::scheduler
