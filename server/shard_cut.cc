// Checkpoints of a shard: the cut, its slices, and what the store reports (rules K1 to K3, K6).
#include <fmt/format.h>

#include <utility>

#include "server/shard_impl.h"

namespace tarn::server {

void Shard::Impl::AdoptOrder(const CheckpointOrder& order) {
  if (part_ && part_->id != order.id) part_.reset();
  if (pending_cut_ && pending_cut_->id != order.id) pending_cut_.reset();
  if (cut_ && cut_->order.id != order.id) AbandonCut();
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

// Nothing is copied but a first slice: small shards are done with that.
void Shard::Impl::Cut() {
  cut_ = ActiveCut{.order = *std::exchange(pending_cut_, std::nullopt), .max_clock = cohort_.maximum()};
  cut_->tables = rows_->BeginCut();
  if (!cut_->hash_only()) BeginSegment(cut_->order.id);
  if (!cut_->hash_only()) {
    writing_.insert(cut_->order.id);
    store_->Begin({.id = cut_->order.id,
                   .shard = options_.shard,
                   .partition_bits = rows_->partition_bits(),
                   .max_clock = cut_->max_clock,
                   .tables = cut_->tables},
                  cut_->order.directory);
  }
  ContinueCut();
}

void Shard::Impl::ContinueCut() {
  chunks_.clear();
  const bool done = rows_->ContinueCut(options_.cut_slice_bytes, &chunks_);
  for (CutRows& chunk : chunks_) {
    if (cut_->hash_only()) {
      cut_->AddHash(chunk);
    } else {
      store_->Put(std::move(chunk));
    }
  }
  next_slice_ = now_ + options_.cut_pause_us;
  if (done) FinishCut();
}

void Shard::Impl::FinishCut() {
  const ActiveCut cut = *std::exchange(cut_, std::nullopt);
  if (!cut.hash_only()) {
    store_->Finish();
    ++counters_.checkpoints;
    return;
  }
  part_ = CheckpointPart{.id = cut.order.id, .max_clock = cut.max_clock, .state_hash = cut.state_hash};
  SendPart();
}

void Shard::Impl::AbandonCut() {
  rows_->DropCut();
  if (!cut_->hash_only()) store_->Abandon();
  cut_.reset();
}

void Shard::Impl::OnCheckpointWritten(CheckpointPart part, TimeUs now, Outbox* out) {
  if (stopped_) return;
  now_ = now;
  out_ = out;
  writing_.erase(part.id);
  // The folder of a checkpoint that is given up may be gone before its files are written.
  const bool failed = part.code != ErrorCode::kOk && part.id == view_.checkpoint.id;
  const Error error{part.code, part.message};
  if (part.id == view_.checkpoint.id) {
    part_ = std::move(part);
    SendPart();
  }
  // What the storage refused once it is not asked for again: the shard stops, the job resumes from the last checkpoint.
  if (failed) StopWith(error.code, fmt::format("shard {}: checkpoint: {}", options_.shard.value, error.message));
}

}  // namespace tarn::server
