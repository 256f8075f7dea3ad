// Checkpoints as files (server/checkpoint/checkpoint_format.h): written on a strand of a pool, beside the shard's work;
// read with every checksum verified. Only server/rocksdb_* includes RocksDB.
//
//   RocksDbCheckpointStore store(&pool, [&] { transport.Wake(); });
//   Shard shard(options, &store);
//   for (CheckpointPart& part : store.TakeWritten()) shard.OnCheckpointWritten(std::move(part), now, &out);
//
// All but the writing is the shard's thread's.
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
  // `wake` is called from the writing thread whenever there is something to take, or room again. Beyond
  // `queued_bytes_max` of rows that wait to be written there is no room; the rows of the partition at hand, which the
  // writer keeps until it has all of them, are not among them. The pool outlives the store.
  RocksDbCheckpointStore(DiskPool* pool, std::function<void()> wake,
                         std::size_t queued_bytes_max = limits::kCutQueuedBytesMax);
  // Leaves the file at hand as it is; without a manifest it is none.
  ~RocksDbCheckpointStore() override;

  void Begin(Snapshot head, std::string directory) override;
  void Put(CutRows chunk) override;
  void Finish(std::optional<std::uint64_t> whole_hash) override;
  void Abandon() override;
  bool HasRoom() override;
  Status Load(const std::string& directory, RowSink& sink) override;

  // From the next checkpoint on rows take no more than so much memory while they wait, and no more at the writer (but
  // for many runs of one partition, which grow: they are of different files).
  void BoundMemory(std::size_t bytes);
  // Memory that it may take now, rows and what it makes of them; 0 unless a checkpoint is being written.
  std::size_t memory_max() const;

  // Parts that are durable or have failed since the last call.
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
  void TakeUp(Job job, std::size_t bytes);
  void DoOrReport(Job job);
  void Do(Job job);
  void Report(CheckpointPart part);

  std::function<void()> wake_;
  // The shard's thread's.
  std::size_t run_bytes_max_ = limits::kCheckpointRunBytes;
  std::size_t parts_ = 0;  // begun, and not taken yet

  std::mutex mutex_;  // guards all below but the last two
  std::size_t queued_bytes_max_;
  std::size_t queued_bytes_ = 0;
  bool waited_for_ = false;  // HasRoom said no
  std::vector<CheckpointPart> written_;
  bool closing_ = false;
  std::unique_ptr<RocksDbCheckpointWriter> writer_;  // the strand's; null: nothing begun, or it has failed
  DiskPool::Strand writes_;
};

}  // namespace tarn::server
