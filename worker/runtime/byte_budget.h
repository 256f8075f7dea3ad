// Bounds the total bytes of requests in progress (Request::Charge). Any thread. Internal to worker/.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace tarn::worker {

class ByteBudget {
 public:
  explicit ByteBudget(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // Returns false if the total would exceed bytes_max. If nothing is taken, any number of bytes fits.
  bool TryTake(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!Fits(bytes)) return false;
    taken_ += bytes;
    return true;
  }
  // Blocks until the bytes fit.
  void Take(std::size_t bytes) {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return Fits(bytes); });
    taken_ += bytes;
  }
  void Return(std::size_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      taken_ -= bytes;
    }
    returned_.notify_all();
  }

  std::size_t taken() const {
    const std::lock_guard lock(mutex_);
    return taken_;
  }
  std::size_t bytes_max() const { return bytes_max_; }

 private:
  bool Fits(std::size_t bytes) const { return taken_ == 0 || taken_ + bytes <= bytes_max_; }

  const std::size_t bytes_max_;
  mutable std::mutex mutex_;
  std::condition_variable returned_;
  std::size_t taken_ = 0;
};

}  // namespace tarn::worker
