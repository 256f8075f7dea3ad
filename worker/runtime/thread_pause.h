// A pause of one thread, which other threads may end early. Internal to worker/.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "core/types.h"

namespace tarn::worker {

class ThreadPause {
 public:
  // Pauses the calling thread while lasts() returns true. Checks it every `check_us`, with a lock held that Interrupt
  // needs. One thread.
  template <typename Lasts>
  void While(Lasts lasts, TimeUs check_us) {
    std::unique_lock lock(mutex_);
    paused_ = true;
    while (!interrupted_ && lasts()) changed_.wait_for(lock, std::chrono::microseconds(check_us));
    paused_ = false;
    interrupted_ = false;
  }
  // Ends the pause in progress, or else the next one at its start. Any thread.
  void Interrupt() {
    {
      const std::lock_guard lock(mutex_);
      interrupted_ = true;
    }
    changed_.notify_all();
  }
  // Any thread.
  bool paused() const { return paused_.load(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<bool> paused_{false};
  bool interrupted_ = false;
};

}  // namespace tarn::worker
