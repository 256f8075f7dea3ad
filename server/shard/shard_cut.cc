// Checkpoints of a shard: the cut, its slices, and what the store reports (rules K1 to K3, K6).
#include <fmt/format.h>

#include <utility>

#include "server/shard/shard_impl.h"

namespace tarn::server {

void Shard::Impl::AdoptOrder(const CheckpointOrder& order) {
  if (part_ && part_->id != order.id) part_.reset();
  if (pending_cut_ && pending_cut_->id != order.id) pending_cut_.reset();
  if (cut_ && cut_->order.id != order.id) AbandonCut();
  blobs_.Keep(order.id);
  if (order.id <= newest_order_) return;
  newest_order_ = order.id;
  pending_cut_ = order;
}

void Shard::Impl::CutIfDue() {
  if (!pending_cut_) return;
  if (pending_cut_->at_clock) {
    if (cohort_.minimum() < pending_cut_->clock) return;
    CloseBelow(pending_cut_->clock);
  }
  Cut();
}

// Whether this shard knows what changed since the order's base (rule K7): it counts from the cut before this one or, if
// that did not become whole, from an earlier one; before the first cut from the checkpoint that was loaded. It forgets
// when too many rows have gone since.
bool Shard::Impl::KnowsBase(const CheckpointOrder& order) const {
  if (order.base.value == 0) return true;
  if (!rows_->cut().KnowsChanges(order.base == last_cut_)) return false;
  if (last_cut_.value == 0) return resumed_;
  return order.base >= base_ && (resumed_ || order.base <= last_cut_);
}

// Nothing is copied but a first slice: small shards are done with that.
void Shard::Impl::Cut() {
  const CheckpointOrder order = *std::exchange(pending_cut_, std::nullopt);
  if (!KnowsBase(order)) {
    part_ = CheckpointPart{.id = order.id,
                           .code = ErrorCode::kNotFound,
                           .message = fmt::format("what changed since checkpoint {} is not known", order.base.value),
                           .max_clock = cohort_.maximum()};
    return SendPart();
  }
  cut_ = ActiveCut{.order = order, .max_clock = cohort_.maximum()};
  const bool all = order.base.value == 0 && !cut_->hash_only();
  cut_->tables = rows_->cut().Begin({.scope = all ? CutScope::kAll : CutScope::kChanged,
                                  .base_is_previous_cut = order.base.value != 0 && order.base == last_cut_,
                                  .hash_all = order.whole_hash && !all});
  if (order.base.value != 0) base_ = order.base;
  last_cut_ = order.id;
  if (!cut_->hash_only()) BeginSegment(order.id);
  if (!cut_->hash_only()) {
    writing_.insert(order.id);
    store_->Begin({.id = order.id,
                   .shard = options_.shard,
                   .partition_bits = rows_->partition_bits(),
                   .max_clock = cut_->max_clock,
                   .tables = cut_->tables,
                   .base = order.base,
                   .base_directory = order.base_directory,
                   .shards = static_cast<std::uint32_t>(view_.routes.endpoints.size())},
                  order.directory);
  }
  ContinueCut();
}

void Shard::Impl::ContinueCut() {
  chunks_.clear();
  if (!Note(rows_->cut().Continue(options_.cut_slice_bytes, &chunks_))) return;
  if (!cut_->hash_only())
    for (CutRows& chunk : chunks_) store_->Put(std::move(chunk));
  next_slice_ = now_ + options_.cut_pause_us;
  if (!rows_->cut().active()) FinishCut();
}

void Shard::Impl::FinishCut() {
  const ActiveCut cut = *std::exchange(cut_, std::nullopt);
  std::optional<std::uint64_t> hash;  // of a full one, the store sums it up
  if (cut.order.whole_hash && (cut.hash_only() || cut.order.base.value != 0)) hash = rows_->cut().state_hash();
  if (!cut.hash_only()) {
    store_->Finish(hash);
    ++counters_.checkpoints;
    return;
  }
  part_ = CheckpointPart{
      .id = cut.order.id, .max_clock = cut.max_clock, .state_hash = hash.value_or(0), .whole_hash = hash};
  SendPart();
}

void Shard::Impl::AbandonCut() {
  rows_->cut().Drop();
  if (!cut_->hash_only()) store_->Abandon();
  cut_.reset();
}

void Shard::Impl::OnCheckpointWritten(CheckpointPart part, TimeUs now, Outbox* out) {
  if (stopped_) return;
  now_ = now;
  out_ = out;
  writing_.erase(part.id);
  // The folder of a checkpoint that is given up may be gone before its files are written.
  if (part.id != view_.checkpoint.id) return;
  ReportPart(std::move(part));
}

// A part that failed costs the checkpoint and nothing else: what to do without it the scheduler decides (rule K3). No
// more rows are copied for it, and what comes of it later changes nothing.
void Shard::Impl::ReportPart(CheckpointPart part) {
  if (part_ && part_->id == part.id && part_->code != ErrorCode::kOk) return;
  if (part.code != ErrorCode::kOk && cut_ && cut_->order.id == part.id) AbandonCut();
  part_ = std::move(part);
  SendPart();
}

// Into whose directory something may still be written; 0: none.
CheckpointId Shard::Impl::OldestWritten() const {
  const CheckpointId rows = writing_.empty() ? CheckpointId(0) : *writing_.begin();
  const CheckpointId blobs = blobs_.writing();
  if (rows.value == 0 || blobs.value == 0) return std::max(rows, blobs);
  return std::min(rows, blobs);
}

}  // namespace tarn::server
