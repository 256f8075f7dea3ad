#include "core/background.h"

#include <pthread.h>

#include <utility>

namespace tarn {

Background::~Background() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool Background::Do(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() >= waiting_max_) return false;
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) {
      thread_ = std::thread([this] { Run(); });
      pthread_setname_np(thread_.native_handle(), name_.c_str());
    }
  }
  changed_.notify_all();
  return true;
}

void Background::Drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
}

void Background::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    job();
    job = nullptr;
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace tarn
