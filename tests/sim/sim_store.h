// Checkpoints of a simulated fleet: in memory, slow now and then, and failing when told to. Watches that nobody removes
// a directory into which a shard still writes, and that no manifest names what is not there.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/hash.h"
#include "scheduler/scheduler.h"
#include "server/memory_checkpoint_store.h"
#include "tests/sim/network.h"
#include "tests/sim/oracle.h"

namespace tarn::sim {

// The disk that all processes of a run share.
struct SimDisk {
  server::MemoryCheckpointFiles files;
  std::map<std::string, Manifest> manifests;
  std::multiset<std::string> writing;  // directories into which a shard writes now
  std::set<std::string> removed;
  std::uint64_t failed = 0;  // writes that were made to fail
};

// The scheduler's side.
class SimSchedulerStore : public scheduler::SchedulerStore {
 public:
  SimSchedulerStore(SimDisk* disk, Oracle* oracle, double fail, std::uint64_t seed)
      : disk_(disk), oracle_(oracle), fail_(fail), rng_(Mix64(seed ^ 0x73746f)) {}
  Status WriteManifest(const std::string& directory, const Manifest& manifest) override;
  void RemoveCheckpoint(const std::string& directory) override;
  // The fleet has been told to stop: what is abandoned then goes without asking.
  void Stopping() { stopping_ = true; }

 private:
  SimDisk* disk_;
  Oracle* oracle_;
  double fail_;
  SplitMix rng_;
  bool stopping_ = false;
};

// A shard's side. `later(delay, run)`: call run after the delay, unless the shard's process is gone by then.
class SimShardStore : public server::CheckpointStore {
 public:
  struct Options {
    ShardId shard;
    double fail = 0;  // chance of a write
    double slow = 0;  // chance of a write to take seconds
    std::uint64_t seed = 0;
  };
  using Later = std::function<void(TimeUs, std::function<void()>)>;
  SimShardStore(Options options, SimDisk* disk, Later later, std::function<void(CheckpointPart)> written)
      : options_(options),
        disk_(disk),
        later_(std::move(later)),
        written_(std::move(written)),
        rng_(Mix64(options.seed ^ options.shard.value)) {}

  void Begin(server::Snapshot head, std::string directory) override;
  void Put(server::CutRows chunk) override { open_->Put(std::move(chunk)); }
  void Finish() override { End(false); }
  void Abandon() override { End(true); }
  bool HasRoom() override { return true; }
  Status Load(const std::string& directory, server::RowSink& sink) override;

 private:
  void End(bool abandoned);

  Options options_;
  SimDisk* disk_;
  Later later_;
  std::function<void(CheckpointPart)> written_;
  SplitMix rng_;
  std::shared_ptr<server::MemoryCheckpointStore> open_;  // of the part begun
  CheckpointId id_;
  std::string directory_;
};

}  // namespace tarn::sim
