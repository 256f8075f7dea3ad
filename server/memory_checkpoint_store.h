// Checkpoints in memory, for simulated fleets and tests: "files" that all shards of a fleet share, and a store for each
// shard. Not thread-safe.
//
//   MemoryCheckpointFiles files;
//   MemoryCheckpointStore store(&files, ShardId(0), [&](CheckpointPart part) { later(std::move(part)); });
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "server/checkpoint_store.h"

namespace tarn::server {

// Snapshots by directory and shard.
class MemoryCheckpointFiles {
 public:
  void Put(const std::string& directory, Snapshot snapshot);
  // Null if there is no such directory.
  const std::map<ShardId, Snapshot>* Find(const std::string& directory) const;
  void Remove(const std::string& directory) { directories_.erase(directory); }

  // From now on writing fails with this error (code kOk: works again). Loading goes on working.
  void FailWrites(Error error) { write_error_ = std::move(error); }
  const Error& write_error() const { return write_error_; }

 private:
  std::map<std::string, std::map<ShardId, Snapshot>> directories_;
  Error write_error_{ErrorCode::kOk, ""};
};

class MemoryCheckpointStore : public CheckpointStore {
 public:
  // `files` outlives the store. `written` is called from within Finish and Abandon, that is, within a step of the
  // shard: it keeps the part and calls Shard::OnCheckpointWritten after the step.
  MemoryCheckpointStore(MemoryCheckpointFiles* files, ShardId shard, std::function<void(CheckpointPart)> written)
      : files_(files), shard_(shard), written_(std::move(written)) {}

  void Begin(Snapshot head, std::string directory) override;
  void Put(CutRows chunk) override;
  void Finish() override;
  void Abandon() override;
  bool HasRoom() override { return true; }
  Status Load(const std::string& directory, RowSink& sink) override;

 private:
  MemoryCheckpointFiles* files_;
  ShardId shard_;
  std::function<void(CheckpointPart)> written_;
  std::optional<Snapshot> open_;
  std::string directory_;
};

}  // namespace tarn::server
