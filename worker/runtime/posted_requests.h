// Requests that threads have posted and that the next turn of a client's loop starts (runtime.h). Any thread. Internal
// to worker/.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/error.h"
#include "worker/runtime/request.h"

namespace tarn::worker {

class PostedRequests {
 public:
  using Requests = std::vector<std::shared_ptr<Request>>;

  // Adds requests. The value: whether no other request was waiting. After End it adds nothing and returns the error.
  Expected<bool> Post(std::span<const std::shared_ptr<Request>> requests) {
    const std::lock_guard lock(mutex_);
    if (ended_) return std::unexpected(*ended_);
    const bool first = waiting_.empty();
    waiting_.insert(waiting_.end(), requests.begin(), requests.end());
    has_waiting_.store(true, std::memory_order_release);
    return first;
  }
  // Removes all requests and returns them, in the order of their posts. Takes no lock if there are none.
  Requests Take() {
    Requests taken;
    if (!has_waiting_.load(std::memory_order_acquire)) return taken;
    const std::lock_guard lock(mutex_);
    taken.swap(waiting_);
    has_waiting_ = false;
    return taken;
  }
  // Ends posting; the first error counts. Removes all requests and returns them.
  Requests End(const Error& error) {
    const std::lock_guard lock(mutex_);
    if (!ended_) ended_ = error;
    return std::exchange(waiting_, {});
  }
  // No error before End, then its error.
  Status ended() const {
    const std::lock_guard lock(mutex_);
    if (ended_) return std::unexpected(*ended_);
    return {};
  }
  // After End; on the thread that called it.
  const Error& error() const { return *ended_; }

 private:
  mutable std::mutex mutex_;
  Requests waiting_;
  std::atomic<bool> has_waiting_{false};
  std::optional<Error> ended_;
};

}  // namespace tarn::worker
