// The scheduler's state on disk, for runs with durability "log". With it, a run whose processes have all ended
// continues from the end of its shards' logs (rules G1 to G5). It is replaced atomically, before any message that
// depends on it is sent.
//
// The file RUN_DIR/scheduler.state: a body, a FlatBuffer (schemas/scheduler_state.fbs), in the envelope of
// core/codec/sealed.h with the magic "TARNSTAT". It exists until the run ends.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/codec/manifest.h"
#include "core/error.h"
#include "core/types.h"
#include "core/view.h"

namespace tarn::scheduler {

inline constexpr std::uint32_t kStateVersion = 3;  // since version 3 the checksum covers the version too
inline constexpr const char* kStateName = "scheduler.state";
inline constexpr const char* kOverName =
    "scheduler.over";  // the state's name after the run, until the logs are removed
inline constexpr const char* kLockName = "scheduler.lock";  // a file beside it that the run's scheduler locks

// A training lease of a worker that has not ended: open, or done so recently that a restart may revert it.
struct KeptLease {
  LeaseId lease;
  Incarnation owner;
  std::uint32_t split = 0;
  bool done = false;
  friend bool operator==(const KeptLease&, const KeptLease&) = default;
};

struct SchedulerState {
  std::uint64_t run = 0;  // random number of the run
  // Job, tables, data (without the leases below), epochs and totals, as in the manifest of a checkpoint made now. Its
  // id is the highest assigned one.
  Manifest progress;
  ViewVersion version;
  Epoch epoch;
  std::vector<ShardId> owners;
  std::vector<WorkerEntry> workers;
  std::uint64_t proposal = 0;
  Clock largest_end;
  LeaseId last_lease;
  std::vector<KeptLease> leases;      // in order of id
  bool begun = false;                 // every shard has a log; before that nothing was acknowledged
  bool best_wanted = false;           // the last epoch was the best, and its checkpoint is not complete
  CheckpointId whole;                 // the checkpoint at which the logs begin; 0: the beginning of the run
  std::string whole_directory;        // of that checkpoint; may belong to the run that was resumed
  std::uint64_t whole_files = 0;      // its FilesHash
  std::string pending_directory;      // of an ordered checkpoint that is not complete
  std::vector<std::string> kept;      // complete checkpoints of this run, oldest first
  std::vector<std::string> outdated;  // checkpoints to remove when this state is durable
  bool programs_keep_state = false;   // a worker's program keeps state, which is not in the logs (rule K10)
  std::vector<LogSequence> logged;    // by shard: last durable record by its last heartbeat
};

// Encode and decode the file. `origin`: its name in errors (kCorrupt, kUnsupported).
std::string EncodeState(const SchedulerState& state);
Expected<SchedulerState> DecodeState(std::string_view bytes, const std::string& origin);

// Reads RUN_DIR/scheduler.state. kNotFound: the run has ended, or has no log.
Expected<SchedulerState> ReadState(const std::string& run_dir);

}  // namespace tarn::scheduler
