// Checkpoints in memory, for simulated fleets and tests: files shared by all shards of a fleet, and a store per shard.
// Not thread-safe.
//
//   MemoryCheckpointFiles files;
//   MemoryCheckpointStore store(&files, ShardId(0), [&](CheckpointPart part) { later(std::move(part)); });
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "server/checkpoint/checkpoint_store.h"

namespace tarn::server {

// Snapshots by directory, checkpoint and shard. Those of older checkpoints belong to the base and were linked by a
// shard.
class MemoryCheckpointFiles {
 public:
  using Parts = std::map<ShardId, std::shared_ptr<const Snapshot>>;
  using Generations = std::map<CheckpointId, Parts>;

  void Put(const std::string& directory, Snapshot snapshot);
  // Links the share of shard `shard` of `shards` in a base: every shards-th part. False if the directory does not
  // exist.
  bool LinkShare(const std::string& base_directory, const std::string& directory, ShardId shard, std::uint32_t shards);
  // Null if the directory does not exist.
  const Generations* Find(const std::string& directory) const;
  // The parts of the newest generation. The directory must exist.
  const Parts& Newest(const std::string& directory) const { return Find(directory)->rbegin()->second; }
  void Remove(const std::string& directory) { directories_.erase(directory); }
  // Removes a part, to simulate a loss of power before a sync.
  void RemovePart(const std::string& directory, CheckpointId id, ShardId shard);

  // Makes writes fail with this error (kOk: succeed again). Loads still succeed.
  void FailWrites(Error error) { write_error_ = std::move(error); }
  const Error& write_error() const { return write_error_; }

 private:
  std::map<std::string, Generations> directories_;
  Error write_error_{ErrorCode::kOk, ""};
};

class MemoryCheckpointStore : public CheckpointStore {
 public:
  // `files` outlives the store. `written` is called within Finish and Abandon, so within a step of the shard: it must
  // store the part and call Shard::OnCheckpointWritten after the step.
  MemoryCheckpointStore(MemoryCheckpointFiles* files, ShardId shard, std::function<void(CheckpointPart)> written)
      : files_(files), shard_(shard), written_(std::move(written)) {}

  void Begin(Snapshot head, std::string directory) override;
  void Put(CutRows chunk) override;
  void Finish(std::optional<std::uint64_t> whole_hash) override;
  void Abandon() override;
  bool HasRoom() override { return true; }
  Status Load(const std::string& directory, RowSink& sink) override;

 private:
  MemoryCheckpointFiles* files_;
  ShardId shard_;
  std::function<void(CheckpointPart)> written_;
  std::optional<Snapshot> open_;
  std::string directory_;
  bool base_is_gone_ = false;
};

}  // namespace tarn::server
