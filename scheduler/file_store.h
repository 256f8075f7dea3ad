// The SchedulerStore of a real run: checkpoints in a directory on disk.
#pragma once

#include <string>

#include "scheduler/scheduler.h"

namespace tarn::scheduler {

class FileStore final : public SchedulerStore {
 public:
  // Removes nothing outside `checkpoints_directory`.
  explicit FileStore(std::string checkpoints_directory);
  Status WriteManifest(const std::string& directory, const Manifest& manifest) override;
  void RemoveCheckpoint(const std::string& directory) override;

 private:
  std::string root_;
};

}  // namespace tarn::scheduler
