// Owns the disk storage of one shard: checkpoints, blobs of workers, its log, and the rows beyond the memory budget.
// One thread; strands of a pool write the files.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "core/disk_pool.h"
#include "core/error.h"
#include "core/job/job.h"
#include "core/types.h"
#include "server/checkpoint/file_blob_store.h"
#include "server/checkpoint/rocksdb_checkpoint_store.h"
#include "server/log/file_shard_log.h"
#include "server/tier/cold_store.h"

namespace tarn::server {

class ShardDisks {
 public:
  struct Options {
    ShardId shard;
    std::uint32_t shards = 1;  // of the server
    std::string run_dir;       // empty: no log
  };
  // `wake` is called on other threads when one of the stores has a result to take. The pool outlives this object.
  ShardDisks(Options options, DiskPool* pool, std::function<void()> wake);

  // Opens the store for rows beyond storage.memory, and bounds the memory of checkpoints by the budget. Null if the job
  // has no budget. kInvalidArgument if neither the job nor the options name a directory; else the error of the store.
  Expected<std::unique_ptr<ColdStore>> OpenTier(const Job& job);

  RocksDbCheckpointStore& checkpoints() { return checkpoints_; }
  FileBlobStore& blobs() { return blobs_; }
  FileShardLog* log() { return log_.get(); }  // null without a run directory

 private:
  Options options_;
  DiskPool* pool_;
  std::function<void()> wake_;
  RocksDbCheckpointStore checkpoints_;
  FileBlobStore blobs_;
  std::unique_ptr<FileShardLog> log_;
};

}  // namespace tarn::server
