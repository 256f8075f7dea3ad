// The leases of a simulated worker: rows that are still to be put into batches, and leases to be reported as done.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/message.h"

namespace tarn::sim {

class SimLeases {
 public:
  // The rows of one batch.
  struct Rows {
    LeaseGrant lease;
    std::uint64_t first = 0, count = 0;
    bool last = false;  // of the lease
  };

  // Must be called when a request is sent; no other may be sent before the reply.
  void OnAsked() { asked_ = true; }
  void OnReply(const LeaseReply& reply) {
    asked_ = false;
    for (const LeaseGrant& grant : reply.grants) granted_.push_back(grant);
    if (reply.finished) finished_ = true;
    if (reply.grants.empty() && !finished_) jump_to_ = reply.jump_to;
  }
  bool asked() const { return asked_; }
  bool finished() const { return finished_; }  // no lease is left in the run

  bool empty() const { return granted_.empty(); }
  std::size_t size() const { return granted_.size(); }
  LeasePurpose purpose() const { return granted_.front().purpose; }  // of the next batch
  Rows Next() {
    const LeaseGrant lease = granted_.front();
    if (offset_ == 0) offset_ = lease.skip_rows;
    Rows rows{lease, lease.first_row + offset_, std::min(lease.batch_rows, lease.rows - offset_)};
    offset_ += rows.count;
    rows.last = offset_ >= lease.rows;
    if (rows.last) {
      granted_.pop_front();
      offset_ = 0;
    }
    return rows;
  }

  // A lease is done: now, or when the tick of `clock` is acknowledged.
  void Finish(LeaseDone done) { done_.push_back(std::move(done)); }
  void FinishAt(Clock clock, LeaseDone done) { done_at_tick_[clock] = std::move(done); }
  void OnAcked(Clock clock) {
    while (!done_at_tick_.empty() && done_at_tick_.begin()->first <= clock) {
      done_.push_back(std::move(done_at_tick_.begin()->second));
      done_at_tick_.erase(done_at_tick_.begin());
    }
  }
  bool awaits_tick() const { return !done_at_tick_.empty(); }
  bool has_done() const { return !done_.empty(); }
  std::vector<LeaseDone> TakeDone() { return std::exchange(done_, {}); }

  // A worker without rows, while others have some, ticks to the clock that the scheduler requests. jumps: whether there
  // is such a clock. TakeJump: returns it once.
  bool jumps() const { return jump_to_.has_value(); }
  std::optional<Clock> TakeJump() { return std::exchange(jump_to_, std::nullopt); }

 private:
  std::deque<LeaseGrant> granted_;
  std::uint64_t offset_ = 0;  // rows of the first lease that are skipped or already in a batch
  std::vector<LeaseDone> done_;
  std::map<Clock, LeaseDone> done_at_tick_;
  bool asked_ = false, finished_ = false;
  std::optional<Clock> jump_to_;
};

}  // namespace tarn::sim
