// Checkpoints as files (server/checkpoint_format.h): written by a thread of its own, beside the shard's work; read with
// every checksum verified. The only place that includes RocksDB.
//
//   RocksDbCheckpointStore store([&] { transport.Wake(); });
//   Shard shard(options, &store);
//   for (CheckpointPart& part : store.TakeWritten()) shard.OnCheckpointWritten(std::move(part), now, &out);
//
// Write, Load and TakeWritten are the shard's thread's.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/checkpoint_store.h"

namespace tarn::server {

class RocksDbCheckpointStore : public CheckpointStore {
 public:
  // `wake` is called from the writing thread whenever there is something to take.
  explicit RocksDbCheckpointStore(std::function<void()> wake);
  // Finishes the file at hand, if there is one; snapshots behind it are dropped.
  ~RocksDbCheckpointStore() override;

  void Write(Snapshot snapshot, std::string directory) override;
  Status Load(const std::string& directory, RowSink& sink) override;

  // Parts that are durable or have failed since the last call.
  std::vector<CheckpointPart> TakeWritten();

 private:
  struct Job {
    Snapshot snapshot;
    std::string directory;
  };
  void WriteJobs();

  std::function<void()> wake_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::vector<CheckpointPart> written_;
  bool closing_ = false;
  std::thread thread_;
};

// Writes one snapshot into the directory, which is made, and syncs it; what it returns says how that went. Any thread.
CheckpointPart WriteCheckpointPart(Snapshot snapshot, const std::string& directory);

}  // namespace tarn::server
