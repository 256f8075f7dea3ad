// Stores checkpoints as files (server/checkpoint/checkpoint_format.h). A strand of a pool writes them in the
// background; reads verify every checksum. Which files include RocksDB: see server/tier/rocksdb_cold_store.h.
//
//   RocksDbCheckpointStore store(&pool, [&] { transport.Wake(); });
//   Shard shard(options, &store);
//   for (CheckpointPart& part : store.TakeWritten()) shard.OnCheckpointWritten(std::move(part), now, &out);
//
// All functions are called on the shard's thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "core/disk_pool.h"
#include "core/limits.h"
#include "server/checkpoint/checkpoint_store.h"
#include "server/checkpoint/rocksdb_checkpoint_writer.h"

namespace tarn::server {

class RocksDbCheckpointStore : public CheckpointStore {
 public:
  // `wake` is called on the strand when TakeWritten has a new report, or HasRoom becomes true after it was false. There
  // is no room while `queued_bytes_max` bytes of rows or more wait for the strand; rows that the writer collects
  // for a run are not counted. The pool outlives the store.
  RocksDbCheckpointStore(DiskPool* pool, std::function<void()> wake,
                         std::size_t queued_bytes_max = limits::kCutQueuedBytesMax);
  // Leaves incomplete files in place; without a manifest they belong to no checkpoint.
  ~RocksDbCheckpointStore() override;

  void Begin(Snapshot head, std::string directory) override;
  void Put(CutRows chunk) override;
  void Finish(std::optional<std::uint64_t> whole_hash) override;
  void Abandon() override;
  bool HasRoom() override;
  Status Load(const std::string& directory, RowSink& sink) override;

  // Limits the rows that wait for the strand to `bytes` bytes, and from the next Begin on also the rows that the writer
  // collects for a run. The first limit can only be lowered. After many runs of one partition, the writer's runs grow
  // beyond the second.
  void BoundMemory(std::size_t bytes);
  // Estimate of the memory that the store may use now; 0 unless a checkpoint is being written.
  std::size_t memory_max() const;

  // The reports of parts that became durable or failed since the last call.
  std::vector<CheckpointPart> TakeWritten();

 private:
  struct BeginJob {
    Snapshot head;
    std::string directory;
    std::size_t run_bytes_max;
  };
  struct FinishJob {
    std::optional<std::uint64_t> whole_hash;
  };
  struct AbandonJob {};
  using Job = std::variant<BeginJob, CutRows, FinishJob, AbandonJob>;

  void Queue(Job job, std::size_t bytes);
  void RunJob(Job job, std::size_t bytes);
  void DoOrReport(Job job);
  void Do(Job job);
  void Report(CheckpointPart part);

  std::function<void()> wake_;
  // Used only on the shard's thread.
  std::size_t run_bytes_max_ = limits::kCheckpointRunBytes;
  std::size_t parts_ = 0;  // begun, and not returned by TakeWritten yet

  std::mutex mutex_;  // guards the members below, except the last two
  std::size_t queued_bytes_max_;
  std::size_t queued_bytes_ = 0;
  bool waited_for_ = false;  // HasRoom has returned false; wake when there is room
  std::vector<CheckpointPart> written_;
  bool closing_ = false;
  std::unique_ptr<RocksDbCheckpointWriter> writer_;  // used only on the strand; null: no part, or it has failed
  DiskPool::Strand writes_;
};

}  // namespace tarn::server
