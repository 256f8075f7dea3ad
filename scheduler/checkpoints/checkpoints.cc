#include "scheduler/checkpoints/checkpoints.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/limits.h"

namespace tarn::scheduler {
namespace {

constexpr TimeUs kFailedPauseUs = 1'000'000, kFailedPauseMaxUs = 60'000'000;

}  // namespace

Checkpoints::Checkpoints(Options options)
    : options_(std::move(options)),
      last_(options_.last),
      last_clock_(options_.start_clock),
      best_(options_.best),
      base_directory_(options_.resumed_directory),
      base_generations_(options_.resumed) {
  for (const std::string& directory : options_.kept) {
    // Compares numbers, because the directory may have been moved or renamed.
    const bool best = CheckpointIdOf(directory) == CheckpointIdOf(best_);
    kept_.push_back({directory, best});
    if (best) best_ = directory;
  }
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
  if (now < not_before_) return false;
  if (now >= NextDue() || log_bytes >= limits::kLogBytesMax) return true;
  const StorageSection& storage = options_.storage;
  return storage.durability != Durability::kNone && storage.checkpoint_clocks != 0 &&
         min_clock >= last_clock_ + storage.checkpoint_clocks;
}

void Checkpoints::NotWritten(TimeUs now) {
  constexpr int kDoublingsMax = 6;
  not_before_ = now + std::min(kFailedPauseUs << std::min(failures_, kDoublingsMax), kFailedPauseMaxUs);
  ++failures_;
}

// A restore reads all generations, so the number and the total size of the increments are limited.
bool Checkpoints::NextIsFull() const {
  if (base_generations_.empty() || base_generations_.size() > options_.storage.checkpoint_chain) return true;
  std::uint64_t deltas = 0;
  for (std::size_t i = 1; i < base_generations_.size(); ++i) deltas += base_generations_[i].bytes();
  return deltas > base_generations_.front().bytes();
}

Cut& Checkpoints::Begin(const CutPlan& plan, TimeUs now, Clock min_clock) {
  last_ = CheckpointId(last_.value + 1);
  last_time_ = now;
  last_clock_ = min_clock;
  pending_.emplace();
  pending_->reason = plan.reason;
  pending_->order = {.id = last_,
                     .at_clock = plan.at_clock,
                     .clock = plan.clock,
                     .directory = {},
                     .base = {},
                     .base_directory = {},
                     .whole_hash = plan.whole_hash};
  if (plan.reason == CutReason::kHash) return *pending_;
  pending_->order.last = plan.last;
  pending_->order.directory = fmt::format("{}/ckpt-{}", options_.directory, last_.value);
  if (NextIsFull()) return *pending_;
  pending_->order.base = base_generations_.back().id;
  pending_->order.base_directory = base_directory_;
  return *pending_;
}

void Checkpoints::OnShardPart(ShardId shard, const CheckpointPart& part) {
  if (pending_ && part.id == pending_->order.id) pending_->shards[shard] = part;
}

void Checkpoints::OnWorkerPart(Incarnation worker, const CheckpointPart& part) {
  if (!pending_ || part.id != pending_->order.id) return;
  if (part.files.empty()) {
    pending_->workers.emplace(worker, part);
  } else if (pending_->order.blobs && part.files.size() == 1 && part.files.front().bytes != 0) {
    pending_->blobs.emplace(worker, part);
  }
}

const CheckpointPart* Checkpoints::Failed(ShardId* shard) const {
  for (const auto& [id, part] : pending_->shards) {
    if (part.code == ErrorCode::kOk) continue;
    *shard = id;
    return &part;
  }
  return nullptr;
}

std::optional<std::uint64_t> Checkpoints::WholeHash() const {
  std::uint64_t sum = 0;
  for (const auto& [shard, part] : pending_->shards) {
    if (!part.whole_hash) return std::nullopt;
    sum += *part.whole_hash;
  }
  return sum;
}

std::vector<Generation> Checkpoints::Generations(Clock clock) const {
  std::vector<Generation> all;
  if (pending_->order.base.value != 0) all = base_generations_;
  // Each generation contains all keys that wait for admission, so those of the earlier ones are outdated.
  for (Generation& generation : all) {
    std::erase_if(generation.files, [](const CheckpointFile& file) { return file.seen != 0; });
    for (CheckpointTable& table : generation.tables) table.seen = 0;
  }
  Generation& own = all.emplace_back(Generation{pending_->order.id, clock, {}, {}, 0});
  std::map<TableId, CheckpointTable> tables;
  for (const auto& [shard, part] : pending_->shards) {
    own.files.insert(own.files.end(), part.files.begin(), part.files.end());
    own.state_hash += part.state_hash;
    for (const CheckpointTable& table : part.tables) {
      CheckpointTable& sum = tables[table.table];
      sum.table = table.table;
      sum.rows += table.rows;
      sum.removed += table.removed;
      sum.seen += table.seen;
      sum.state_rows += table.state_rows;
    }
  }
  for (const auto& [id, table] : tables) own.tables.push_back(table);
  return all;
}

std::vector<std::string> Checkpoints::Complete(std::vector<Generation> generations) {
  const auto hash = WholeHash();
  has_hash_ = hash.has_value();
  hash_ = hash.value_or(0);
  const Cut cut = std::move(*pending_);
  pending_.reset();
  failures_ = 0;
  not_before_ = 0;
  if (cut.hash_only()) return {};

  const bool best = cut.reason == CutReason::kBest;
  if (best)
    for (Kept& kept : kept_) kept.best = false;
  kept_.push_back({cut.order.directory, best});
  newest_ = base_directory_ = cut.order.directory;
  base_generations_ = std::move(generations);
  if (best) best_ = newest_;
  return Prune();
}

std::vector<std::string> Checkpoints::Prune() {
  std::vector<std::string> removed;
  std::size_t others = 0;  // the best checkpoint is kept in addition
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
