#include "scheduler/file_store.h"

#include <filesystem>
#include <utility>

#include "core/log.h"
#include "core/manifest.h"

namespace tarn::scheduler {

namespace fs = std::filesystem;

FileStore::FileStore(std::string checkpoints_directory) : root_(std::move(checkpoints_directory)) {}

Status FileStore::WriteManifest(const std::string& directory, const Manifest& manifest) {
  return tarn::WriteManifest(directory, manifest);
}

void FileStore::RemoveCheckpoint(const std::string& directory) {
  const fs::path path(directory);
  TARN_CHECK(path.parent_path() == fs::path(root_), "only this run's checkpoints may be removed");
  std::error_code error;
  // Without its manifest it is no checkpoint any more, however far the rest gets.
  fs::remove(path / kManifestName, error);
  fs::remove_all(path, error);
  if (error) LogWarning("{}: cannot be removed: {}", directory, error.message());
}

}  // namespace tarn::scheduler
