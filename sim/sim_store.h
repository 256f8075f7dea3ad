// Checkpoints and the scheduler's state of a simulated fleet, in memory. Writes are sometimes slow, the disk is
// sometimes full, failures are injected, and a power loss discards what was not synced. Checks that no directory is
// removed into which a shard still writes; that no manifest names a missing file; that a complete checkpoint, restored
// with all its generations, has the rows of the time at which its parts were begun; and that no slice is written while
// there is no room.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/hash.h"
#include "scheduler/scheduler.h"
#include "scheduler/state/state_gate.h"
#include "server/store/store.h"
#include "sim/disks/memory_checkpoint_store.h"
#include "sim/network.h"
#include "sim/oracle.h"

namespace tarn::sim {

// A file that is replaced as a whole: its current contents, and the oldest contents that a power loss may restore.
struct SimFile {
  std::string bytes, durable;
};

// The disk that all processes of a run share.
struct SimDisk {
  SimFile state;  // of the scheduler; empty: none
  server::MemoryCheckpointFiles files;
  std::map<std::string, Manifest> manifests;
  std::multiset<std::string> writing;  // directories into which a shard writes now
  std::set<std::string> removed;
  std::set<std::string> lossy;  // directories that are no longer complete, and cannot be a base
  std::map<std::string, std::map<ShardId, std::uint64_t>> cut_hashes;  // of the rows of each shard, by directory
  std::set<std::string> unreadable;          // directories begun while rows could not be read: not compared
  std::map<std::string, std::string> blobs;  // of workers, by path: the bytes
  // Written but not durable: survives a kill, may be lost with the power. Parts by shard, blobs by path.
  std::map<ShardId, std::vector<std::pair<std::string, CheckpointId>>> unsynced;
  std::map<std::string, ShardId> unsynced_blobs;
  // Injected failures: of checkpoints, without parts that were abandoned before their report, and of tiers.
  std::uint64_t failed_writes = 0, failed_tiers = 0;
};

// Simulates a loss of power of the shard's machine: removes its unsynced parts and blobs at random. dice(n): a random
// number below n.
void LoseUnsynced(SimDisk* disk, ShardId shard, const std::function<std::uint64_t(std::uint64_t)>& dice);
// The files that a complete checkpoint's manifest names and that are missing; empty: none. A part was durable before it
// was reported, and a blob before it was named.
std::string MissingOf(const SimDisk& disk);

// All rows of a checkpoint, in one store that owns all partitions.
Expected<std::unique_ptr<server::Store>> Restore(const SimDisk& disk, const std::string& directory,
                                                 const Manifest& manifest);

// The scheduler's side. Writes take their time, stall for longer than leases, and fail.
class SimSchedulerStore : public scheduler::SchedulerStore {
 public:
  struct Options {
    double fail_manifest = 0, slow_manifest = 0;  // probabilities, per manifest
    double fail_state = 0;                        // per state; never so often that the run ends
    double fail_addresses = 0;                    // per list
    double stall = 0;                             // probability that a write takes longer than two leases
    TimeUs sync_max_us = 0, stall_us = 0, until_us = 0;
    std::uint64_t seed = 0;
  };
  struct Hooks {
    std::function<TimeUs()> now;
    // Calls `run` after the delay, unless the scheduler's process has ended by then.
    std::function<void(TimeUs, std::function<void()> run)> later;
    std::function<void(const scheduler::StoreWritten&)> written;  // a step of the scheduler
    // A checkpoint is complete.
    std::function<void(const std::string& directory, const Manifest& manifest)> whole;
  };
  SimSchedulerStore(Options options, SimDisk* disk, Oracle* oracle, Hooks hooks)
      : options_(options),
        disk_(disk),
        oracle_(oracle),
        hooks_(std::move(hooks)),
        rng_(Mix64(options.seed ^ 0x73746f)),
        time_rng_(Mix64(options.seed ^ 0x737464)),
        address_rng_(Mix64(options.seed ^ 0x737468)) {}
  void WriteManifest(CheckpointId id, const std::string& directory, const Manifest& manifest) override;
  void RemoveCheckpoint(const std::string& directory) override;
  void WriteState(std::uint64_t number, const scheduler::SchedulerState& state) override;
  void RemoveState() override { disk_->state = {}; }
  void WriteAddresses(std::uint64_t number, const std::vector<scheduler::ProcessAddress>& addresses) override;
  // Must be called when another scheduler starts.
  void Started() {
    stopping_ = false;
    listed_ = 0;
  }
  // Number of processes in the newest list of addresses whose write has ended since Started; 0: none.
  std::size_t listed() const { return listed_; }
  // The fleet was ordered to stop: abandoned parts may then be removed without a check.
  void Stopping() { stopping_ = true; }
  // The scheduler's process ends: its current write may or may not take effect.
  void EndProcess();
  // After EndProcess, if its machine also loses power: what is not durable may be lost.
  void LosePower();
  std::uint64_t stalls() const { return stalls_; }
  std::uint64_t failed_states() const { return failed_states_; }

 private:
  bool IsThere(const std::string& directory, const Manifest& manifest) const;
  void CheckRestored(const std::string& directory, const Manifest& manifest);
  void Put(const std::string& directory, const Manifest& manifest);
  TimeUs Duration(double slow, SplitMix* rng);

  Options options_;
  SimDisk* disk_;
  Oracle* oracle_;
  Hooks hooks_;
  SplitMix rng_, time_rng_, address_rng_;
  std::optional<std::string> state_;                          // being written
  std::optional<std::pair<std::string, Manifest>> manifest_;  // likewise
  std::optional<std::size_t> addresses_;                      // likewise, their number
  std::size_t listed_ = 0;
  int failures_ = 0;  // consecutive failed writes of states
  std::uint64_t stalls_ = 0;
  std::uint64_t failed_states_ = 0;
  bool stopping_ = false;
};

// A shard's side.
class SimShardStore : public server::CheckpointStore {
 public:
  struct Options {
    ShardId shard;
    double fail = 0;       // probability that a part fails early, and that its last write fails
    double slow = 0;       // probability that a write takes seconds
    double lose_base = 0;  // probability that a file of the base is missing
    double full = 0;       // probability that there is no room for a while after a chunk
    std::uint64_t seed = 0;
  };
  // The interface to the shard's process.
  struct Hooks {
    // Calls `run` after the delay, unless the process has ended by then.
    std::function<void(TimeUs, std::function<void()> run)> later;
    std::function<void(CheckpointPart)> written;          // a step of the shard
    std::function<void()> wake;                           // a turn of the loop, when there is room again
    std::function<Expected<std::uint64_t>()> state_hash;  // of the shard's current rows
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
  void SyncPart(CheckpointPart part, const std::string& directory);
  void FailEarly();
  void LoseBase(const std::string& base);
  void Fail(CheckpointPart part, std::uint64_t failures);
  void FillUp();
  void CheckRows(const CheckpointPart& part, const Expected<std::uint64_t>& state_hash);
  TimeUs Duration();
  CheckpointPart Failed() const;

  Options options_;
  SimDisk* disk_;
  Oracle* oracle_;
  Hooks hooks_;
  SplitMix rng_;
  std::shared_ptr<server::MemoryCheckpointStore> open_;  // of the current part; null after a failure
  std::shared_ptr<bool> wanted_;                         // of a part that failed early: it was not abandoned
  CheckpointId id_;
  std::string directory_;
  std::optional<std::uint64_t> whole_hash_;
  std::optional<std::uint64_t> chunks_left_;  // until the part fails
  bool full_ = false;
  bool refused_ = false;  // the last HasRoom returned false; cleared when a part begins or there is room again
};

}  // namespace tarn::sim
