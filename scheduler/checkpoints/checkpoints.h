// The checkpoints of a run (rules K2, K6, K7): when a periodic one is due, the number, directory and base of the next
// one, the pending one, and the directories to keep. CheckpointCoordinator orders them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/codec/manifest.h"
#include "core/job/job.h"
#include "core/message.h"
#include "scheduler/checkpoints/cut.h"

namespace tarn::scheduler {

// The properties of a checkpoint that is about to be ordered.
struct CutPlan {
  CutReason reason = CutReason::kPeriodic;
  bool at_clock = false;
  Clock clock;
  bool whole_hash = false;
  bool last = false;
};

class Checkpoints {
 public:
  struct Options {
    StorageSection storage;
    std::string directory;  // checkpoint n goes to <directory>/ckpt-<n>
    CheckpointId last;      // highest number in use
    std::string best;       // directory of the best checkpoint so far, perhaps of an earlier run; empty: none
    Clock start_clock;
    std::vector<std::string> kept;  // directories of this run before a restart, oldest first
    // The checkpoint that was resumed, which is the base of the first one. Empty: the first one is full.
    std::string resumed_directory;
    std::vector<Generation> resumed;
  };
  explicit Checkpoints(Options options);

  // Whether a periodic checkpoint is due, counted from the last cut of any kind. `log_bytes`: size of the largest log.
  // After a checkpoint that could not be written there is a pause of 1 s, doubled with each further failure, at most 60
  // s.
  bool Due(TimeUs now, Clock min_clock, std::uint64_t log_bytes = 0) const;
  void StartCounting(TimeUs now) { last_time_ = now; }
  // When storage.checkpoint_seconds makes the next periodic checkpoint due; INT64_MAX: never.
  TimeUs NextDue() const;

  // Begins a checkpoint: assigns its number and directory, and chooses its base (rule K7).
  Cut& Begin(const CutPlan& plan, TimeUs now, Clock min_clock);
  Cut* pending() { return pending_ ? &*pending_ : nullptr; }
  const Cut* pending() const { return pending_ ? &*pending_ : nullptr; }

  // Stores the part if it belongs to the pending checkpoint.
  void OnShardPart(ShardId shard, const CheckpointPart& part);
  void OnWorkerPart(Incarnation worker, const CheckpointPart& part);

  // The first part that reports a failure, and its shard. Null: none.
  const CheckpointPart* Failed(ShardId* shard) const;

  // Generations: those in the manifest of the pending checkpoint, whose own generation is the last; `clock`: its resume
  // clock. WholeHash: the hash of the whole state; nullopt unless every part contains its hash.
  std::vector<Generation> Generations(Clock clock) const;
  std::optional<std::uint64_t> WholeHash() const;
  // The pending checkpoint is complete: its manifest with these generations is durable, or only a hash was wanted.
  // Returns directories to remove.
  std::vector<std::string> Complete(std::vector<Generation> generations);
  // The pending checkpoint could not be written: the pause before the next periodic one begins. It remains pending
  // until Abandon.
  void NotWritten(TimeUs now);
  // The newest complete checkpoint cannot be a base: the next one is full.
  void ForgetBase() { base_generations_.clear(); }
  // The generations of the newest complete checkpoint; empty: it cannot be a base.
  const std::vector<Generation>& base_generations() const { return base_generations_; }
  // Abandons the pending checkpoint. Returns its directory, or an empty string.
  std::string Abandon();

  CheckpointId last() const { return last_; }  // highest number that was assigned
  std::vector<std::string> kept() const;       // directories of complete ones that are kept, oldest first

  bool has_hash() const { return has_hash_; }
  std::uint64_t hash() const { return hash_; }
  const std::string& newest() const { return newest_; }
  const std::string& best() const { return best_; }

 private:
  struct Kept {
    std::string directory;
    bool best = false;
  };
  bool NextIsFull() const;
  std::vector<std::string> Prune();

  Options options_;
  std::optional<Cut> pending_;
  std::vector<Kept> kept_;  // oldest first
  CheckpointId last_;
  TimeUs last_time_ = 0;
  Clock last_clock_;
  int failures_ = 0;       // consecutive checkpoints that could not be written
  TimeUs not_before_ = 0;  // end of the pause after failures
  bool has_hash_ = false;
  std::uint64_t hash_ = 0;
  std::string newest_, best_;
  std::string base_directory_;                // of the newest complete one; may belong to an earlier run
  std::vector<Generation> base_generations_;  // its generations; empty: it cannot be a base
};

}  // namespace tarn::scheduler
