// Checkpoints in memory, for simulated fleets and tests: "files" that all shards of a fleet share, and a store for each
// shard. Not thread-safe.
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

// Snapshots by directory, checkpoint and shard: those of older checkpoints are the base's, which a shard has taken
// over.
class MemoryCheckpointFiles {
 public:
  using Parts = std::map<ShardId, std::shared_ptr<const Snapshot>>;
  using Generations = std::map<CheckpointId, Parts>;

  void Put(const std::string& directory, Snapshot snapshot);
  // Takes over the share that shard `shard` of `shards` has of a base: every shards-th part. False if there is no such
  // directory.
  bool TakeOver(const std::string& base_directory, const std::string& directory, ShardId shard, std::uint32_t shards);
  // Null if there is no such directory.
  const Generations* Find(const std::string& directory) const;
  // The newest generation's; the directory must be there.
  const Parts& Newest(const std::string& directory) const { return Find(directory)->rbegin()->second; }
  void Remove(const std::string& directory) { directories_.erase(directory); }
  // One part is gone, as what was not synced is with the power. For simulated fleets.
  void RemovePart(const std::string& directory, CheckpointId id, ShardId shard);

  // From now on writing fails with this error (code kOk: works again). Loading goes on working.
  void FailWrites(Error error) { write_error_ = std::move(error); }
  const Error& write_error() const { return write_error_; }

 private:
  std::map<std::string, Generations> directories_;
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
