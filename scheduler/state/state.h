// What the scheduler of a run with durability "log" keeps on disk, so that after a crash of all processes the run
// continues where its shards' logs end (rules G1 to G5). It is written whole and atomically, before anything that
// depends on it is sent.
//
// The file RUN_DIR/scheduler.state: a body, a FlatBuffer (schemas/scheduler_state.fbs), in the envelope of
// core/codec/sealed.h with the magic "TARNSTAT". It exists until the run is over.
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

inline constexpr std::uint32_t kStateVersion = 3;  // from it on the sum covers the version too
inline constexpr const char* kStateName = "scheduler.state";
inline constexpr const char* kOverName = "scheduler.over";  // its name once the run is over, until the logs are removed
inline constexpr const char* kLockName = "scheduler.lock";  // a file beside it that the run's scheduler locks

// A training lease of a worker that has not ended: open, or done so recently that a restart may take its end back.
struct KeptLease {
  LeaseId lease;
  Incarnation owner;
  std::uint32_t split = 0;
  bool done = false;
  friend bool operator==(const KeptLease&, const KeptLease&) = default;
};

struct SchedulerState {
  std::uint64_t run = 0;  // drawn when the run began
  // What the manifest of a checkpoint made now would hold of job, tables, data (without the leases below), epochs and
  // totals; its id is the highest that was assigned.
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
  bool best_wanted = false;           // the last epoch was the best, and its checkpoint is not whole
  CheckpointId whole;                 // at which the logs begin; 0: at the beginning of the run
  std::string whole_directory;        // of that checkpoint, perhaps of the run that was resumed; empty: none
  std::uint64_t whole_files = 0;      // its FilesHash
  std::string pending_directory;      // of a checkpoint that was ordered and is not whole
  std::vector<std::string> kept;      // whole checkpoints of this run, oldest first
  std::vector<std::string> outdated;  // whole ones that are removed once this is on disk
  std::vector<LogSequence> logged;    // by shard: durable in its log, as of its last heartbeat
};

// The bytes of the file and back; `origin` names it in errors: kCorrupt, kUnsupported.
std::string EncodeState(const SchedulerState& state);
Expected<SchedulerState> DecodeState(std::string_view bytes, const std::string& origin);

// Of RUN_DIR/scheduler.state. kNotFound if there is none: the run is over, or has no log.
Expected<SchedulerState> ReadState(const std::string& run_dir);

}  // namespace tarn::scheduler
