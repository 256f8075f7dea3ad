// The blobs of workers on the disk of a simulated fleet, with occasional slow and failing writes.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "server/checkpoint/blob_store.h"
#include "sim/sim_store.h"
#include "sim/top_k_model.h"

namespace tarn::sim {

class SimBlobStore : public server::BlobStore {
 public:
  struct Options {
    ShardId shard;
    double fail = 0;  // probability that a write fails
    double slow = 0;  // probability that a write takes seconds
    std::uint64_t seed = 0;
  };
  // The interface to the shard's process, like the hooks of SimShardStore; `now` as in SimSchedulerStore.
  struct Hooks {
    std::function<TimeUs()> now;
    std::function<void(TimeUs, std::function<void()> run)> later;
    std::function<void(server::BlobWritten)> written;
  };
  SimBlobStore(Options options, SimDisk* disk, Oracle* oracle, Hooks hooks)
      : options_(options),
        disk_(disk),
        oracle_(oracle),
        hooks_(std::move(hooks)),
        rng_(Mix64(options.seed ^ options.shard.value ^ 0x626c6f62)) {}

  void Write(server::BlobWrite write) override;
  void Abandon(CheckpointId checkpoint, const std::string& directory, Incarnation worker, WorkerRank rank) override;
  Expected<server::BlobSlice> Read(const std::string& directory, WorkerRank rank, std::uint64_t offset,
                                   std::size_t bytes_max) override;

 private:
  TimeUs NextDelay();
  server::BlobWritten DoWrite(const server::BlobWrite& write);

  Options options_;
  SimDisk* disk_;
  Oracle* oracle_;
  Hooks hooks_;
  SplitMix rng_;
  TimeUs ends_ = 0;             // end of the last operation; all end in order
  std::set<std::string> open_;  // open files by path
};

// The contents of a worker's blob: the residuals of the oracle table, the state of the program, and the blob's clock.
struct StoredState {
  Clock clock;
  std::vector<ResidualCount> residuals;
  Buffer program;
};
// Reads a blob of a checkpoint. kNotFound: it does not exist. kCorrupt: it differs from the manifest. Other errors:
// those of ReadBlob.
Expected<StoredState> ReadStored(const SimDisk& disk, const std::string& directory, const Manifest& manifest,
                                 const WorkerBlob& blob);

}  // namespace tarn::sim
