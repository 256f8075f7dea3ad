// Which leases of data a worker has finished, and when it asks the scheduler for more. A finished lease is reported
// with the next request. One that was trained is reported only once the tick behind its last batch is acknowledged by
// every shard: until then its gradients may be lost with this worker, and its rows would not be trained again.
//
// One request is under way at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/message.h"

namespace tarn::worker {

// A lease whose last batch is finished.
struct FinishedLease {
  LeaseDone done;
  std::optional<Clock> tick;  // training: the tick behind its last batch
};

class LeaseProgress {
 public:
  // Leases that are held or asked for at a time: one in work, one ahead.
  static constexpr std::uint32_t kLeasesAhead = 2;

  enum class Next : std::uint8_t { kNothing, kRequest, kLeave };

  void OnReply(const LeaseReply& reply) {
    requested_ = false;
    finished_ = finished_ || reply.finished;
    if (reply.grants.empty() && !finished_) jump_to_ = reply.jump_to;
  }
  void OnFinished(FinishedLease lease) {
    if (lease.tick)
      unacknowledged_.emplace(*lease.tick, std::move(lease.done));
    else
      done_.push_back(std::move(lease.done));
  }
  void OnTickAcknowledged(Clock clock) {
    while (!unacknowledged_.empty() && unacknowledged_.begin()->first <= clock) {
      done_.push_back(std::move(unacknowledged_.begin()->second));
      unacknowledged_.erase(unacknowledged_.begin());
    }
  }

  // The clock to which a worker without work ticks, once. drained: no lease is held and no batch is in flight.
  std::optional<Clock> TakeJump(bool drained) {
    if (requested_ || left_ || !drained) return std::nullopt;
    return std::exchange(jump_to_, std::nullopt);
  }
  // What to do now; after kRequest, MakeRequest; after kLeave nothing more. held: leases not read to their end.
  Next TakeNext(std::size_t held, bool drained) {
    if (requested_ || left_) return Next::kNothing;
    const bool all_reported = drained && unacknowledged_.empty();
    if (finished_) {
      left_ = all_reported;
      return left_ ? Next::kLeave : Next::kNothing;
    }
    const bool ahead = held < kLeasesAhead && !jump_to_ && !drained;
    requested_ = ahead || all_reported;
    return requested_ ? Next::kRequest : Next::kNothing;
  }
  // rows: of the training, validation and test set.
  LeaseRequest MakeRequest(std::span<const std::uint64_t, 3> rows) {
    LeaseRequest request;
    request.want = kLeasesAhead;
    request.done = std::exchange(done_, {});
    std::copy(rows.begin(), rows.end(), request.rows.begin());
    return request;
  }

  bool finished() const { return finished_; }  // the scheduler has no more work

 private:
  std::vector<LeaseDone> done_;                     // reported with the next request
  std::multimap<Clock, LeaseDone> unacknowledged_;  // by the tick behind them
  std::optional<Clock> jump_to_;
  bool requested_ = false, finished_ = false, left_ = false;
};

}  // namespace tarn::worker
