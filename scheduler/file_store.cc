#include "scheduler/file_store.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "core/codec/manifest.h"
#include "core/file.h"
#include "core/json.h"
#include "core/limits.h"
#include "core/log.h"

namespace tarn::scheduler {

namespace fs = std::filesystem;

FileStore::FileStore(DiskPool* pool, std::string run_dir, std::string checkpoints_directory, std::function<void()> wake)
    : run_dir_(std::move(run_dir)),
      checkpoints_directory_(std::move(checkpoints_directory)),
      wake_(std::move(wake)),
      removals_(pool, "removals"),
      writes_(pool, "state") {}

void FileStore::WriteState(std::uint64_t number, const SchedulerState& state) {
  writes_.Post([this, number, path = run_dir_ + "/" + kStateName, bytes = EncodeState(state)] {
    Status status;
    if (bytes.size() > limits::kStateBytesMax)
      status = Fail(ErrorCode::kTooLarge,
                    fmt::format("{}: {} bytes, expected at most {}", path, bytes.size(), limits::kStateBytesMax));
    else
      status = WriteFileAtomic(path, bytes);
    Report({StoreWritten::What::kState, number, std::move(status)});
  });
}

void FileStore::WriteManifest(CheckpointId id, const std::string& directory, const Manifest& manifest) {
  writes_.Post([this, id, directory, manifest] {
    Report({StoreWritten::What::kManifest, id.value, tarn::WriteManifest(directory, manifest)});
  });
}

void FileStore::WriteAddresses(std::uint64_t number, const std::vector<ProcessAddress>& addresses) {
  writes_.Post([this, number, addresses] {
    Json list = Json::array();
    for (const ProcessAddress& each : addresses)
      list.push_back({{"role", each.role}, {"rank", each.rank}, {"http", each.http}});
    Report({StoreWritten::What::kAddresses, number,
            WriteFileAtomic(run_dir_ + "/" + kAddressesName, JsonText(list, 2) + "\n")});
  });
}

void FileStore::RemoveAddresses() {
  const std::string path = run_dir_ + "/" + kAddressesName;
  RemoveUnfinished(path);
  std::error_code error;
  fs::remove(path, error);
  if (error) LogWarning("{}: cannot be removed: {}", path, error.message());
}

void FileStore::Report(StoreWritten written) {
  {
    const std::lock_guard lock(mutex_);
    written_.push_back(std::move(written));
  }
  wake_();
}

std::vector<StoreWritten> FileStore::TakeWritten() {
  const std::lock_guard lock(mutex_);
  return std::exchange(written_, {});
}

Status FileStore::RemoveEndedState() {
  Drain();
  if (!remove_state_) return {};
  const std::string path = run_dir_ + "/" + kStateName;
  std::error_code error;
  fs::rename(path, run_dir_ + "/" + kOverName, error);
  if (error) return Fail(ErrorCode::kIo, fmt::format("{}: cannot rename to {}: {}", path, kOverName, error.message()));
  TARN_RETURN_IF_ERROR(SyncDirectory(run_dir_));
  // The state is renamed before the logs are removed, because a run that continues from a state needs its logs. It is
  // not removed before them, because logs without either file look like the loss of a state.
  RemoveEndedLogs();
  return {};
}

void FileStore::RemoveOldLogs(std::uint64_t run) {
  const auto state = ReadState(run_dir_);
  if (state && !state->begun && state->run != run) RemoveLogs();
  if (!state && state.error().code == ErrorCode::kNotFound) RemoveEndedLogs();
}

void FileStore::RemoveEndedLogs() {
  const fs::path over = fs::path(run_dir_) / kOverName;
  std::error_code error;
  if (!fs::exists(over, error) || !RemoveLogs()) return;
  fs::remove(over, error);
  if (error) LogWarning("{}/{}: cannot be removed: {}", run_dir_, kOverName, error.message());
}

// False: the logs could not be removed, or their removal may not be durable.
bool FileStore::RemoveLogs() const {
  std::error_code error;
  fs::remove_all(fs::path(run_dir_) / "log", error);
  if (error) LogWarning("{}/log: cannot be removed: {}", run_dir_, error.message());
  return !error && SyncDirectory(run_dir_);
}

void FileStore::RemovePartial() {
  writes_.Drain();
  removals_.Drain();
  const auto found = ListCheckpoints(run_dir_);
  if (!found) return;
  for (const CheckpointDirectory& checkpoint : *found)
    if (!checkpoint.has_manifest) Remove(checkpoint.path);
}

// Begins the removal after all earlier writes, so that no manifest is written to a directory that is being removed.
// Removes on another strand, so that later writes are not delayed.
void FileStore::RemoveCheckpoint(const std::string& directory) {
  {
    const std::lock_guard lock(mutex_);
    if (!removing_.insert(directory).second) return;
  }
  writes_.Post([this, directory] {
    removals_.Post([this, directory] {
      Remove(directory);
      const std::lock_guard lock(mutex_);
      removing_.erase(directory);
    });
  });
}

std::vector<std::string> FileStore::Removing() const {
  const std::lock_guard lock(mutex_);
  return {removing_.begin(), removing_.end()};
}

void FileStore::Remove(const std::string& directory) {
  // Uses only the number in `directory`: a state may contain the path from before the run directory was moved. So only
  // checkpoints in checkpoints_directory_ are removed.
  const auto id = CheckpointIdOf(directory);
  if (!id) return;
  const fs::path path = fs::path(checkpoints_directory_) / fmt::format("ckpt-{}", id->value);
  std::error_code error;
  // Removes the manifest first, so that a partial removal leaves no valid checkpoint. Does not follow links, because
  // their target may belong to someone else.
  if (!fs::is_symlink(path, error)) fs::remove(path / kManifestName, error);
  fs::remove_all(path, error);
  if (error) LogWarning("{}: cannot be removed: {}", path.string(), error.message());
}

}  // namespace tarn::scheduler
