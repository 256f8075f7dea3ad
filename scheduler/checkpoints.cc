#include "scheduler/checkpoints.h"

#include <fmt/format.h>

#include <utility>

namespace tarn::scheduler {

std::string_view Name(CutReason reason) {
  switch (reason) {
    case CutReason::kPeriodic: return "periodic";
    case CutReason::kRequested: return "requested";
    case CutReason::kBest: return "best";
    case CutReason::kHash: return "hash";
    case CutReason::kFinal: return "final";
    case CutReason::kStop: return "stop";
  }
  return "unknown";
}

Checkpoints::Checkpoints(Options options)
    : options_(std::move(options)), last_(options_.last), last_clock_(options_.start_clock), best_(options_.best) {
  for (const std::string& directory : options_.kept) kept_.push_back({directory, directory == best_});
  if (!kept_.empty()) newest_ = kept_.back().directory;
}

std::vector<std::string> Checkpoints::kept() const {
  std::vector<std::string> directories;
  for (const Kept& kept : kept_) directories.push_back(kept.directory);
  return directories;
}

TimeUs Checkpoints::NextDue() const {
  const StorageSection& storage = options_.storage;
  if (storage.durability == Durability::kNone || storage.checkpoint_seconds <= 0) return INT64_MAX;
  return last_time_ + static_cast<TimeUs>(storage.checkpoint_seconds * 1e6);
}

bool Checkpoints::Due(TimeUs now, Clock min_clock, std::uint64_t log_bytes) const {
  if (now >= NextDue() || log_bytes >= kLogBytesMax) return true;
  const StorageSection& storage = options_.storage;
  return storage.durability != Durability::kNone && storage.checkpoint_clocks != 0 &&
         min_clock >= last_clock_ + storage.checkpoint_clocks;
}

Cut& Checkpoints::Begin(CutReason reason, bool at_clock, Clock clock, TimeUs now, Clock min_clock) {
  last_ = CheckpointId(last_.value + 1);
  last_time_ = now;
  last_clock_ = min_clock;
  pending_.emplace();
  pending_->reason = reason;
  pending_->order = {.id = last_, .at_clock = at_clock, .clock = clock, .directory = {}};
  if (reason != CutReason::kHash)
    pending_->order.directory = fmt::format("{}/ckpt-{}", options_.directory, last_.value);
  return *pending_;
}

void Checkpoints::OnShardPart(ShardId shard, const CheckpointPart& part) {
  if (pending_ && part.id == pending_->order.id) pending_->shards[shard] = part;
}

void Checkpoints::OnWorkerPart(Incarnation worker, const CheckpointPart& part) {
  if (pending_ && part.id == pending_->order.id) pending_->workers.emplace(worker, part);
}

const CheckpointPart* Checkpoints::Failed(ShardId* shard) const {
  for (const auto& [id, part] : pending_->shards) {
    if (part.code == ErrorCode::kOk) continue;
    *shard = id;
    return &part;
  }
  return nullptr;
}

std::vector<std::string> Checkpoints::Complete() {
  hash_ = 0;
  for (const auto& [shard, part] : pending_->shards) hash_ += part.state_hash;
  has_hash_ = true;
  const Cut cut = std::move(*pending_);
  pending_.reset();
  if (cut.hash_only()) return {};

  const bool best = cut.reason == CutReason::kBest;
  if (best)
    for (Kept& kept : kept_) kept.best = false;
  kept_.push_back({cut.order.directory, best});
  newest_ = cut.order.directory;
  if (best) best_ = newest_;

  std::vector<std::string> removed;
  std::size_t others = 0;  // the best is kept besides
  for (const Kept& kept : kept_) others += kept.best ? 0 : 1;
  const std::size_t keep = std::max<std::size_t>(options_.storage.checkpoints_kept, 1);
  for (auto it = kept_.begin(); others > keep && it + 1 != kept_.end();) {
    if (it->best) {
      ++it;
      continue;
    }
    removed.push_back(it->directory);
    it = kept_.erase(it);
    --others;
  }
  return removed;
}

std::string Checkpoints::Abandon() {
  std::string directory = std::move(pending_->order.directory);
  pending_.reset();
  return directory;
}

}  // namespace tarn::scheduler
