// The finished leases of a worker, and when it requests more from the scheduler. A finished lease is reported with the
// next request. A trained lease is reported only after every shard has acknowledged the tick after its last batch:
// until then its gradients may be lost with this worker, and its rows must then be trained again.
//
// One request is open at a time.
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
  std::optional<Clock> tick;  // training: the tick after its last batch
};

class LeaseProgress {
 public:
  // While it holds fewer leases than this, a worker requests this many more, so that it rarely waits for a lease.
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

  // The clock to which a worker without work must tick, returned only once; else nullopt. `drained`: there is no lease
  // and no batch in flight.
  std::optional<Clock> TakeJump(bool drained) {
    if (requested_ || left_ || !drained) return std::nullopt;
    return std::exchange(jump_to_, std::nullopt);
  }
  // The next action. After kRequest call MakeRequest; kLeave is the last. `held`: number of leases whose batches have
  // not all been taken from the reader.
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
  // `rows`: of the training, validation and test set.
  LeaseRequest MakeRequest(std::span<const std::uint64_t, 3> rows) {
    LeaseRequest request;
    request.want = kLeasesAhead;
    request.done = std::exchange(done_, {});
    std::copy(rows.begin(), rows.end(), request.rows.begin());
    return request;
  }

  bool finished() const { return finished_; }  // the scheduler has no more work

 private:
  std::vector<LeaseDone> done_;                     // to report with the next request
  std::multimap<Clock, LeaseDone> unacknowledged_;  // by the tick after them
  std::optional<Clock> jump_to_;
  bool requested_ = false, finished_ = false, left_ = false;
};

}  // namespace tarn::worker
