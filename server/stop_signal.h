// The stop signal of a server's shards. Set wakes every shard that waits for messages.
//
//   StopSignal::Waker waker(&stop, [&] { transport.Wake(); });
//   while (!stop.IsSet()) transport.Receive(...);
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <mutex>
#include <utility>

namespace tarn::server {

// Any thread.
class StopSignal {
 public:
  bool IsSet() const { return set_.load(std::memory_order_relaxed); }
  void Set() {
    set_.store(true, std::memory_order_relaxed);
    const std::lock_guard lock(mutex_);
    for (const auto& wake : wakes_) wake();
  }

  // While it exists, Set calls `wake`, which must not block or use the signal.
  class Waker {
   public:
    Waker(StopSignal* stop, std::function<void()> wake) : stop_(stop) {
      const std::lock_guard lock(stop_->mutex_);
      at_ = stop_->wakes_.insert(stop_->wakes_.end(), std::move(wake));
    }
    ~Waker() {
      const std::lock_guard lock(stop_->mutex_);
      stop_->wakes_.erase(at_);
    }
    Waker(const Waker&) = delete;
    Waker& operator=(const Waker&) = delete;

   private:
    StopSignal* stop_;
    std::list<std::function<void()>>::iterator at_;
  };

 private:
  std::atomic<bool> set_ = false;
  std::mutex mutex_;
  std::list<std::function<void()>> wakes_;
};

}  // namespace tarn::server
