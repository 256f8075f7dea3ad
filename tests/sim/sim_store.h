// Checkpoints of a simulated fleet: in memory, slow and full now and then, and failing when told to. Watches that
// nobody removes a directory into which a shard still writes, that no manifest names what is not there, that a whole
// checkpoint, restored with all its generations, has the rows as they were when its parts were begun, and that no slice
// comes before there is room again.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/hash.h"
#include "scheduler/scheduler.h"
#include "server/memory_checkpoint_store.h"
#include "server/store/store.h"
#include "tests/sim/network.h"
#include "tests/sim/oracle.h"

namespace tarn::sim {

// The disk that all processes of a run share.
struct SimDisk {
  std::string state;  // of the scheduler, as the file's bytes; empty: none
  server::MemoryCheckpointFiles files;
  std::map<std::string, Manifest> manifests;
  std::multiset<std::string> writing;  // directories into which a shard writes now
  std::set<std::string> removed;
  std::set<std::string> lossy;  // directories that are not whole any more: no base for another
  std::map<std::string, std::map<ShardId, std::uint64_t>> cut_hashes;  // of the rows of each shard, by directory
  std::map<std::string, std::string> blobs;                            // of workers, by path: the bytes
  std::uint64_t failed = 0;  // writes that were made to fail, but for parts given up before it was told
};

// All rows of a checkpoint, in one store that owns all partitions.
Expected<std::unique_ptr<server::Store>> Restore(const SimDisk& disk, const std::string& directory,
                                                    const Manifest& manifest);

// The scheduler's side.
class SimSchedulerStore : public scheduler::SchedulerStore {
 public:
  using Written = std::function<void(const std::string& directory, const Manifest& manifest)>;
  // written: there is a checkpoint, whole.
  SimSchedulerStore(SimDisk* disk, Oracle* oracle, double fail, std::uint64_t seed, Written written)
      : disk_(disk), oracle_(oracle), fail_(fail), rng_(Mix64(seed ^ 0x73746f)), written_(std::move(written)) {}
  Status WriteManifest(const std::string& directory, const Manifest& manifest) override;
  void RemoveCheckpoint(const std::string& directory) override;
  Status WriteState(const scheduler::SchedulerState& state) override {
    disk_->state = scheduler::EncodeState(state);
    return {};
  }
  Status RemoveState() override {
    disk_->state.clear();
    return {};
  }
  // Another scheduler begins.
  void Started() { stopping_ = false; }
  // The fleet has been told to stop: what is abandoned then goes without asking.
  void Stopping() { stopping_ = true; }

 private:
  bool IsThere(const std::string& directory, const Manifest& manifest) const;
  void CheckRestored(const std::string& directory, const Manifest& manifest);

  SimDisk* disk_;
  Oracle* oracle_;
  double fail_;
  SplitMix rng_;
  Written written_;
  bool stopping_ = false;
};

// A shard's side.
class SimShardStore : public server::CheckpointStore {
 public:
  struct Options {
    ShardId shard;
    double fail = 0;       // chance of a part to fail early, and with its last write
    double slow = 0;       // chance of a write to take seconds
    double lose_base = 0;  // chance that a file of the base is gone
    double full = 0;       // chance of a chunk to leave no room for a while
    std::uint64_t seed = 0;
  };
  // What it needs of the shard's process.
  struct Hooks {
    // Calls `run` after the delay, unless the process is gone by then.
    std::function<void(TimeUs, std::function<void()> run)> later;
    std::function<void(CheckpointPart)> written;  // a step of the shard
    std::function<void()> wake;                   // a turn of the loop: there is room again
    std::function<std::uint64_t()> state_hash;    // of the shard's rows now
  };
  SimShardStore(Options options, SimDisk* disk, Oracle* oracle, Hooks hooks)
      : options_(options),
        disk_(disk),
        oracle_(oracle),
        hooks_(std::move(hooks)),
        rng_(Mix64(options.seed ^ options.shard.value)) {}

  void Begin(server::Snapshot head, std::string directory) override;
  void Put(server::CutRows chunk) override;
  void Finish(std::optional<std::uint64_t> whole_hash) override;
  void Abandon() override;
  bool HasRoom() override;
  Status Load(const std::string& directory, server::RowSink& sink) override;

 private:
  void End(bool abandoned);
  void FailEarly();
  void LoseBase(const std::string& base);
  void Fail(CheckpointPart part, std::uint64_t counts);
  void FillUp();
  void CheckRows(const CheckpointPart& part, std::uint64_t state_hash);
  TimeUs Duration();
  CheckpointPart Failed() const;

  Options options_;
  SimDisk* disk_;
  Oracle* oracle_;
  Hooks hooks_;
  SplitMix rng_;
  std::shared_ptr<server::MemoryCheckpointStore> open_;  // of the part begun; null once it has failed
  std::shared_ptr<bool> wanted_;                         // the part that failed early, until it is given up
  CheckpointId id_;
  std::string directory_;
  std::optional<std::uint64_t> whole_hash_;
  std::optional<std::uint64_t> chunks_left_;  // until the part fails
  bool full_ = false;
  bool refused_ = false;  // HasRoom said no, and nothing was begun or drained since
};

}  // namespace tarn::sim
