// The SchedulerStore of a real run: files in the run's directory. One strand of a thread pool writes states, manifests
// and the list of addresses, another removes checkpoints, so that a slow disk does not block the scheduler during the
// run. Drain, RemoveEndedState, RemoveAddresses, RemoveOldLogs and RemovePartial block: they are for its start and end.
//
//   FileStore store(&pool, run_dir, checkpoints, [&] { transport.Wake(); });
//   for (const StoreWritten& written : store.TakeWritten()) scheduler.OnWritten(written, now, &out);
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "core/disk_pool.h"
#include "scheduler/scheduler.h"

namespace tarn::scheduler {

inline constexpr const char* kAddressesName = "addresses.json";  // in the run directory

class FileStore final : public SchedulerStore {
 public:
  // Of checkpoints it removes only ckpt-<number> in `checkpoints_directory`. `wake` is called on another thread when
  // TakeWritten has a result. The pool outlives the store.
  FileStore(DiskPool* pool, std::string run_dir, std::string checkpoints_directory, std::function<void()> wake = [] {});
  void WriteManifest(CheckpointId id, const std::string& directory, const Manifest& manifest) override;
  void RemoveCheckpoint(const std::string& directory) override;
  std::vector<std::string> Removing() const override;
  void WriteState(std::uint64_t number, const SchedulerState& state) override;
  // Removes the state later, in RemoveEndedState: a run that is killed before its summary is written can then continue.
  void RemoveState() override { remove_state_ = true; }
  void WriteAddresses(std::uint64_t number, const std::vector<ProcessAddress>& addresses) override;
  // Removes the list of an earlier scheduler in this directory.
  void RemoveAddresses();
  // The writes that ended since the last call.
  std::vector<StoreWritten> TakeWritten();
  // Waits until all writes have ended.
  void Drain() { writes_.Drain(); }
  // Call it when the summary is written. Waits until all writes have ended. If RemoveState was called, renames the
  // state, and removes the shards' logs in the run directory and then the renamed state (rule G1). An error: the state
  // cannot be renamed (kIo), or the new name cannot be made durable (kIo; kNotFound if the run directory is gone). A
  // failed removal of the logs or of the renamed state is only logged, a failed sync between the two not even that.
  Status RemoveEndedState();
  // Before this run begins: removes the logs and the renamed state of a run that has ended, if they still exist, and
  // the logs of another run that has not begun, whose workers have had no acknowledgement yet.
  void RemoveOldLogs(std::uint64_t run);
  // Waits for all pending writes and removals, and removes the incomplete checkpoints of the run. No checkpoint may be
  // in progress.
  void RemovePartial();

 private:
  void Remove(const std::string& directory);
  void RemoveEndedLogs();
  bool RemoveLogs() const;
  void Report(StoreWritten written);

  std::string run_dir_;
  std::string checkpoints_directory_;
  std::function<void()> wake_;
  bool remove_state_ = false;
  mutable std::mutex mutex_;  // guards the next two
  std::set<std::string> removing_;
  std::vector<StoreWritten> written_;
  DiskPool::Strand removals_;
  DiskPool::Strand writes_;  // destroyed first: it posts removals
};

}  // namespace tarn::scheduler
