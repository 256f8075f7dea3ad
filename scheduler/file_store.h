// The SchedulerStore of a real run: files in its folder. A strand of a thread pool writes states and manifests, and
// another removes checkpoints, for the scheduler must not fall silent over a disk that stalls or over gigabytes.
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

class FileStore final : public SchedulerStore {
 public:
  // Removes nothing but ckpt-<number> in `checkpoints_directory`, and its own state in `run_dir`. `wake` is called from
  // another thread whenever there is something to take. The pool outlives the store.
  FileStore(DiskPool* pool, std::string run_dir, std::string checkpoints_directory, std::function<void()> wake = [] {});
  void WriteManifest(CheckpointId id, const std::string& directory, const Manifest& manifest) override;
  void RemoveCheckpoint(const std::string& directory) override;
  std::vector<std::string> Removing() const override;
  void WriteState(std::uint64_t number, const SchedulerState& state) override;
  // Only notes it: a run that is ended by force before its summary is there goes on, and gets one.
  void RemoveState() override { over_ = true; }
  // What has been written since the last call.
  std::vector<StoreWritten> TakeWritten();
  // Waits until all writes that were begun have ended.
  void Drain() { writes_.Drain(); }
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
  void Report(StoreWritten written);

  std::string run_dir_;
  std::string root_;
  std::function<void()> wake_;
  bool over_ = false;
  mutable std::mutex mutex_;  // guards the next two
  std::set<std::string> removing_;
  std::vector<StoreWritten> written_;
  DiskPool::Strand removals_;
  DiskPool::Strand writes_;  // destroyed first: it posts removals
};

}  // namespace tarn::scheduler
