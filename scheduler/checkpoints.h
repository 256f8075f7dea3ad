// Coordinated checkpoints (rules K1-K6): when one is due, whose parts are in, which directories are kept. It orders
// nothing itself; the scheduler puts orders into the view.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/job.h"
#include "core/manifest.h"
#include "core/message.h"
#include "scheduler/splits.h"

namespace tarn::scheduler {

// Why a checkpoint is cut. Those of an earlier kind give way to those of a later one.
enum class CutReason : std::uint8_t { kPeriodic, kRequested, kBest, kHash, kFinal, kStop };
std::string_view Name(CutReason reason);

// A checkpoint is due, whatever the job says of periods, when a shard's log has grown to this: what is behind a whole
// checkpoint is dropped from the logs, and a recovery has no more to replay.
inline constexpr std::uint64_t kLogBytesMax = std::uint64_t{8} << 30;

// A checkpoint that is ordered and not complete.
struct Cut {
  CutReason reason = CutReason::kPeriodic;
  CheckpointOrder order;
  Manifest manifest;                // K2: noted at the order; K1: filled in at the end
  std::uint64_t samples_noted = 0;  // K2
  bool at_boundary = false;         // nothing was being trained when it was ordered: it holds all there is
  std::map<ShardId, CheckpointPart> shards;
  std::map<Incarnation, CheckpointPart> workers;
  bool hash_only() const { return order.directory.empty(); }
};

class Checkpoints {
 public:
  struct Options {
    StorageSection storage;
    std::string directory;  // checkpoint n goes to <directory>/ckpt-<n>
    CheckpointId last;      // highest number that is taken
    std::string best;       // of an earlier run; not ours to remove
    Clock start_clock;
    std::vector<std::string> kept;  // directories of this run from before a restart, oldest first
  };
  explicit Checkpoints(Options options);

  // Whether a periodic one is due; counts from the last cut of any kind. log_bytes: of the longest log.
  bool Due(TimeUs now, Clock min_clock, std::uint64_t log_bytes = 0) const;
  void StartCounting(TimeUs now) { last_time_ = now; }
  // When the next one by time is due; INT64_MAX: never.
  TimeUs NextDue() const;

  // Begins a checkpoint: numbers it and names its directory.
  Cut& Begin(CutReason reason, bool at_clock, Clock clock, TimeUs now, Clock min_clock);
  Cut* pending() { return pending_ ? &*pending_ : nullptr; }
  const Cut* pending() const { return pending_ ? &*pending_ : nullptr; }

  // Keeps the part if it belongs to the pending checkpoint.
  void OnShardPart(ShardId shard, const CheckpointPart& part);
  void OnWorkerPart(Incarnation worker, const CheckpointPart& part);

  // The first part that says that it failed.
  const CheckpointPart* Failed(ShardId* shard) const;
  bool AllShards(std::size_t shards) const { return pending_->shards.size() == shards; }

  // The pending one is whole (its manifest is durable), or only its hash is known. Returns directories to remove.
  std::vector<std::string> Complete();
  // It will never be whole. Returns its directory, empty if there is none.
  std::string Abandon();

  CheckpointId last() const { return last_; }  // given out
  std::vector<std::string> kept() const;       // directories of whole ones that are not removed, oldest first

  bool has_hash() const { return has_hash_; }
  std::uint64_t hash() const { return hash_; }
  const std::string& newest() const { return newest_; }
  const std::string& best() const { return best_; }

 private:
  struct Kept {
    std::string directory;
    bool best = false;
  };

  Options options_;
  std::optional<Cut> pending_;
  std::vector<Kept> kept_;  // oldest first
  CheckpointId last_;
  TimeUs last_time_ = 0;
  Clock last_clock_;
  bool has_hash_ = false;
  std::uint64_t hash_ = 0;
  std::string newest_, best_;
};

}  // namespace tarn::scheduler
