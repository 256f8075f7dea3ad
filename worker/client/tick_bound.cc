#include "worker/client/tick_bound.h"

namespace tarn::worker {

bool TickBound::Adopt(const Proposal& proposal, Clock asked, bool mid_clock) {
  const bool is_new = proposal.open && proposal.id > id_;
  if (is_new) {
    id_ = proposal.id;
    clock_ = asked;
  }
  open_ = proposal.open;
  drains_ = proposal.open && proposal.drain;
  if (!is_new || !drains_) return false;
  // A clock with a sent push is finished first: otherwise a checkpoint would contain the push but not its data
  // position.
  drain_to_.reset();
  if (pushed_ != asked && !mid_clock) drain_to_ = asked;
  return true;
}

bool TickBound::OnRest(Clock asked) {
  if (!drains_ || drain_to_ || pushed_ == asked) return false;
  drain_to_ = asked;
  return true;
}

bool TickBound::NoteDrained(Clock acked) {
  if (!drains_ || !drain_to_ || acked < *drain_to_ || drained_ == id_) return false;
  drained_ = id_;
  return true;
}

}  // namespace tarn::worker
