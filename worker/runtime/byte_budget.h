// Bounds the total bytes of requests in progress (Request::Charge). Any thread. Internal to worker/.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
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
  // Blocks until the bytes fit, in the order of the calls: smaller ones do not pass a large one.
  void Take(std::size_t bytes) {
    std::unique_lock lock(mutex_);
    const std::uint64_t ticket = tickets_++;
    returned_.wait(lock, [&] { return ticket == served_ && Fits(bytes); });
    taken_ += bytes;
    ++served_;
    returned_.notify_all();
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
  // Calls of Take that have not returned.
  std::uint64_t waiting() const {
    const std::lock_guard lock(mutex_);
    return tickets_ - served_;
  }
  std::size_t bytes_max() const { return bytes_max_; }

 private:
  bool Fits(std::size_t bytes) const { return taken_ == 0 || taken_ + bytes <= bytes_max_; }

  const std::size_t bytes_max_;
  mutable std::mutex mutex_;
  std::condition_variable returned_;
  std::size_t taken_ = 0;
  std::uint64_t tickets_ = 0, served_ = 0;  // of Take
};

}  // namespace tarn::worker
