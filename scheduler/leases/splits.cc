#include "scheduler/leases/splits.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <utility>

#include "core/error.h"
#include "core/hash.h"

namespace tarn::scheduler {
namespace {

// Number of done leases kept for each worker that has not ended; more than a restart can revert.
constexpr std::size_t kDoneKept = 16;

std::uint64_t DivideUp(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

std::vector<std::uint64_t> BlockOrder(const SplitsOptions& options) {
  std::vector<std::uint64_t> order(DivideUp(options.rows, options.split_rows));
  std::iota(order.begin(), order.end(), std::uint64_t{0});
  if (!options.shuffle) return order;
  SplitMix random(HashCombine(options.seed, options.epoch));
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.Below(i)]);
  return order;
}

}  // namespace

Splits::Splits(const SplitsOptions& options, const std::vector<std::uint64_t>& trained) : options_(options) {
  for (std::uint64_t block : BlockOrder(options)) {
    const auto index = static_cast<std::uint32_t>(splits_.size());
    Split split;
    split.first_row = block * options.split_rows;
    split.rows = std::min(options.split_rows, options.rows - split.first_row);
    if (index < trained.size()) split.restored = split.trained = std::min(trained[index], split.rows);
    splits_.push_back(split);
  }
  ChooseOwners();
  for (std::uint32_t index = 0; index < splits_.size(); ++index) Free(index);
  most_owned_batches_ = CountOwnedBatches();
}

// Each split goes to the rank that would finish it first, the lowest of several.
void Splits::ChooseOwners() {
  if (options_.owners == 0 || options_.batch_rows_by_rank.empty()) return;
  TARN_CHECK(options_.batch_rows_by_rank.size() == options_.owners &&
                 std::ranges::find(options_.batch_rows_by_rank, 0u) == options_.batch_rows_by_rank.end(),
             "expected a batch size above 0 for each rank");
  using Finish = std::pair<std::uint64_t, std::uint32_t>;  // batches, rank
  std::priority_queue<Finish, std::vector<Finish>, std::greater<>> ranks;
  const auto batches = [this](std::uint32_t rank) {  // of a whole split
    return DivideUp(options_.split_rows, options_.batch_rows_by_rank[rank]);
  };
  for (std::uint32_t rank = 0; rank < options_.owners; ++rank) ranks.emplace(batches(rank), rank);
  for (std::size_t i = 0; i < splits_.size(); ++i) {
    const auto [finish, rank] = ranks.top();
    ranks.pop();
    owners_.push_back(rank);
    ranks.emplace(finish + batches(rank), rank);
  }
}

void Splits::Free(std::uint32_t index) {
  if (splits_[index].trained == splits_[index].rows) {
    ++done_;
    return;
  }
  free_[OwnerOf(index)].insert(index);
  ++free_count_;
}

std::optional<std::uint32_t> Splits::Next(WorkerRank rank, const std::set<WorkerRank>& live) const {
  const std::uint32_t own = options_.owners == 0 ? 0 : rank.value;
  if (auto it = free_.find(own); it != free_.end() && !it->second.empty()) return *it->second.begin();
  std::optional<std::uint32_t> best;
  for (const auto& [owner, splits] : free_) {
    if (splits.empty() || live.contains(WorkerRank(owner))) continue;
    if (!best || *splits.begin() < *best) best = *splits.begin();
  }
  return best;
}

// The smaller of the batch sizes of the owning rank and of `rank`, because a larger batch may not fit the memory of the
// worker of `rank`.
std::uint64_t Splits::BatchRows(std::uint32_t split, std::optional<WorkerRank> rank) const {
  if (owners_.empty()) return options_.batch_rows;
  const std::vector<std::uint64_t>& rows = options_.batch_rows_by_rank;
  const std::uint64_t own = rows[owners_[split]];
  return rank && rank->value < rows.size() ? std::min(own, rows[rank->value]) : own;
}

std::uint32_t Splits::RanksWithoutSplits() const {
  std::set<std::uint32_t> ranks;
  for (std::uint32_t i = 0; i < splits_.size() && ranks.size() < options_.owners; ++i) ranks.insert(OwnerOf(i));
  return options_.owners - std::uint32_t(std::min<std::size_t>(ranks.size(), options_.owners));
}

std::uint64_t Splits::BatchesLeft(std::uint32_t split, std::optional<WorkerRank> rank) const {
  return DivideUp(splits_[split].rows - splits_[split].trained, BatchRows(split, rank));
}

LeaseGrant Splits::Grant(std::uint32_t index, LeaseId id, Incarnation owner, std::optional<WorkerRank> rank) {
  const Split& split = splits_[index];
  TARN_CHECK(free_[OwnerOf(index)].erase(index) == 1, "only a free split can be leased");
  --free_count_;
  records_[id] = {.split = index, .owner = owner, .before = split.trained};
  ++open_[owner];
  return {.lease = id,
          .purpose = options_.purpose,
          .epoch = options_.epoch,
          .first_row = split.first_row,
          .rows = split.rows,
          .skip_rows = split.trained,
          .batch_rows = BatchRows(index, rank)};
}

bool Splits::Done(Incarnation owner, const LeaseDone& done) {
  auto it = records_.find(done.lease);
  if (it == records_.end() || it->second.owner != owner || it->second.outcome != Outcome::kOpen) return false;
  it->second.outcome = Outcome::kDone;
  --open_[owner];
  Split& split = splits_[it->second.split];
  split.trained = split.rows;
  split.loss_sum += done.quality.loss_sum;
  quality_.Merge(done.quality);
  ++done_;
  return true;
}

void Splits::Take(Incarnation owner, const DataPosition& position, bool hold, bool take_back) {
  for (auto& [id, record] : records_) {
    if (record.owner != owner || record.outcome == Outcome::kTaken) continue;
    Split& split = splits_[record.split];
    if (record.outcome == Outcome::kDone) {
      const bool covered = id < position.lease || (id == position.lease && position.rows >= split.rows);
      if (!take_back || covered) continue;
      split.trained = record.before;
      --done_;
    }
    record.outcome = Outcome::kTaken;
    if (options_.purpose == LeasePurpose::kTrain) {
      if (id < position.lease) split.trained = split.rows;
      if (id == position.lease) split.trained = std::clamp(position.rows, split.trained, split.rows);
    }
    record.trained = split.trained;
    if (hold && split.trained > 0 && split.trained < split.rows)
      held_.insert(record.split);
    else
      Free(record.split);
  }
  open_.erase(owner);
}

std::vector<std::uint64_t> Splits::Capture(std::vector<KeptLease>* kept) const {
  std::vector<std::uint64_t> trained;
  trained.reserve(splits_.size());
  for (const Split& split : splits_) trained.push_back(split.trained);
  std::map<Incarnation, std::size_t> done;
  for (auto it = records_.rbegin(); it != records_.rend(); ++it) {
    const auto& [id, record] = *it;
    const bool is_done = record.outcome == Outcome::kDone;
    if (record.outcome == Outcome::kTaken || !open_.contains(record.owner)) continue;
    if (is_done && ++done[record.owner] > kDoneKept) continue;
    kept->push_back({id, record.owner, record.split, is_done});
    trained[record.split] = record.before;
  }
  std::reverse(kept->begin(), kept->end());
  return trained;
}

void Splits::Restore(const std::vector<KeptLease>& kept) {
  for (const KeptLease& lease : kept) {
    Split& split = splits_[lease.split];
    if (free_[OwnerOf(lease.split)].erase(lease.split) == 0) continue;  // the state is damaged
    --free_count_;
    records_[lease.lease] = {.split = lease.split,
                             .owner = lease.owner,
                             .outcome = lease.done ? Outcome::kDone : Outcome::kOpen,
                             .before = split.trained};
    open_[lease.owner] += lease.done ? 0 : 1;
    if (!lease.done) continue;
    split.trained = split.rows;
    ++done_;
  }
}

void Splits::Release() {
  for (std::uint32_t split : std::exchange(held_, {})) Free(split);
}

std::uint64_t Splits::OpenLeases(Incarnation owner) const {
  auto it = open_.find(owner);
  return it == open_.end() ? 0 : it->second;
}

std::uint64_t Splits::CountOwnedBatches() const {
  if (options_.owners == 0) return 0;
  std::vector<std::uint64_t> batches(options_.owners);
  for (std::uint32_t i = 0; i < splits_.size(); ++i) batches[OwnerOf(i)] += DivideUp(splits_[i].rows, BatchRows(i, {}));
  return *std::max_element(batches.begin(), batches.end());
}

std::vector<std::uint64_t> Splits::Trained(const Positions& at, bool trust_done) const {
  std::vector<std::uint64_t> trained;
  trained.reserve(splits_.size());
  for (const Split& split : splits_) trained.push_back(split.restored);
  for (const auto& [id, record] : records_) {
    std::uint64_t rows = 0;
    const std::uint64_t all = splits_[record.split].rows;
    const auto position = at.find(record.owner);
    if (record.outcome == Outcome::kDone && (trust_done || position == at.end())) {
      rows = all;
    } else if (position != at.end()) {
      if (id < position->second.lease) rows = all;
      if (id == position->second.lease) rows = std::min(position->second.rows, all);
    } else if (record.outcome == Outcome::kTaken) {
      rows = record.trained;
    }
    trained[record.split] = std::max(trained[record.split], rows);
  }
  return trained;
}

Quality Splits::quality() const {
  Quality sum = earlier_;
  sum.Merge(quality_);
  sum.loss_sum = earlier_.loss_sum;
  for (const Split& split : splits_) sum.loss_sum += split.loss_sum;
  return sum;
}

}  // namespace tarn::scheduler
