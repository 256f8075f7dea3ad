#include "server/shard/shard_cuts.h"

#include <fmt/format.h>

#include <utility>

namespace tarn::server {

Status ShardCuts::Load(const std::string& directory, RowLoader::Unknown unknown) {
  RowLoader loader(context_.rows, unknown);
  base_.loaded = true;
  return context_.store->Load(directory, loader);
}

void ShardCuts::Adopt(const CheckpointOrder& order) {
  current_order_ = order.id;
  if (part_ && part_->id != order.id) part_.reset();
  if (pending_ && pending_->id != order.id) pending_.reset();
  if (cut_ && cut_->order.id != order.id) Abandon();
  if (last_ && last_->id != order.id) last_.reset();
  if (order.id <= newest_order_) return;
  newest_order_ = order.id;
  pending_ = order;
  if (order.last) last_ = order;
}

void ShardCuts::CutIfDue() {
  if (!pending_) return;
  if (pending_->at_clock) {
    if (context_.cohort->minimum() < pending_->clock) return;
    context_.close_below(pending_->clock);
    if (context_.stop->step_failed()) return;
  }
  Cut();
}

// Whether this shard has the changes since the order's base (rule K7). It records changes since the previous cut, or
// since an earlier one if that did not complete; before the first cut, since the loaded checkpoint. The record is lost
// when too many rows were removed.
bool ShardCuts::KnowsBase(const CheckpointOrder& order) const {
  if (order.base.value == 0) return true;
  if (!context_.rows->cut().KnowsChanges(order.base == base_.last_cut)) return false;
  if (base_.last_cut.value == 0) return base_.loaded;
  return order.base >= base_.base && (base_.loaded || order.base <= base_.last_cut);
}

// Copies only a first slice, which completes the cut of a small shard.
void ShardCuts::Cut() {
  const CheckpointOrder order = *std::exchange(pending_, std::nullopt);
  if (!KnowsBase(order)) {
    part_ = CheckpointPart{.id = order.id,
                           .code = ErrorCode::kNotFound,
                           .message = fmt::format("what changed since checkpoint {} is not known", order.base.value),
                           .max_clock = context_.cohort->maximum()};
    return SendPart();
  }
  cut_ = ActiveCut{.order = order, .max_clock = context_.cohort->maximum()};
  const bool all = order.base.value == 0 && !cut_->hash_only();
  std::vector<TableRows> tables =
      context_.rows->cut().Begin({.scope = all ? CutScope::kAll : CutScope::kChanged,
                                  .base_is_previous_cut = order.base.value != 0 && order.base == base_.last_cut,
                                  .hash_all = order.whole_hash && !all});
  if (order.base.value != 0) base_.base = order.base;
  base_.last_cut = order.id;
  if (!cut_->hash_only()) {
    context_.on_cut(order.id);
    BeginPart(order, std::move(tables));
  }
  Continue();
}

void ShardCuts::BeginPart(const CheckpointOrder& order, std::vector<TableRows> tables) {
  writing_.insert(order.id);
  context_.store->Begin({.id = order.id,
                         .shard = context_.step->shard(),
                         .partition_bits = context_.rows->partition_bits(),
                         .max_clock = cut_->max_clock,
                         .tables = std::move(tables),
                         .base = order.base,
                         .base_directory = order.base_directory,
                         .shards = context_.shards_of_view()},
                        order.directory);
}

void ShardCuts::OnTimer() {
  if (cut_ && context_.step->now() >= next_slice_ && HasRoom()) Continue();
}

TimeUs ShardCuts::NextTimer(TimeUs other) const {
  return cut_ && next_slice_ < other && HasRoom() ? next_slice_ : other;
}

void ShardCuts::Continue() {
  chunks_.clear();
  if (!context_.stop->Check(context_.rows->cut().Continue(options_.slice_bytes, &chunks_))) return;
  if (!cut_->hash_only())
    for (CutRows& chunk : chunks_) context_.store->Put(std::move(chunk));
  next_slice_ = context_.step->now() + options_.pause_us;
  if (!context_.rows->cut().active()) Finish();
}

void ShardCuts::Finish() {
  const ActiveCut cut = *std::exchange(cut_, std::nullopt);
  std::optional<std::uint64_t> hash;  // for a full cut the store computes it
  if (cut.order.whole_hash && (cut.hash_only() || cut.order.base.value != 0)) hash = context_.rows->cut().state_hash();
  if (!cut.hash_only()) {
    context_.store->Finish(hash);
    ++context_.counters->checkpoints;
    return;
  }
  part_ = CheckpointPart{
      .id = cut.order.id, .max_clock = cut.max_clock, .state_hash = hash.value_or(0), .whole_hash = hash};
  SendPart();
}

void ShardCuts::Abandon() {
  context_.rows->cut().Drop();
  if (!cut_->hash_only()) context_.store->Abandon();
  cut_.reset();
}

// Does not report the part of an abandoned checkpoint, which may have failed because its directory was removed.
void ShardCuts::OnWritten(CheckpointPart part) {
  writing_.erase(part.id);
  if (part.id == current_order_) Report(std::move(part));
}

// A failed part fails the checkpoint and nothing else; the scheduler decides how to continue (rule K3). No more rows
// are copied for it, and later reports of it are ignored.
void ShardCuts::Report(CheckpointPart part) {
  if (part_ && part_->id == part.id && part_->code != ErrorCode::kOk) return;
  if (part.code != ErrorCode::kOk && cut_ && cut_->order.id == part.id) Abandon();
  part_ = std::move(part);
  SendPart();
}

void ShardCuts::SendPart() {
  if (part_) context_.outbox->Send(kSchedulerPeer, *part_);
}

}  // namespace tarn::server
