#include "server/heap_trimmer.h"

#include <pthread.h>

#include <utility>

namespace tarn::server {

HeapTrimmer::HeapTrimmer(std::function<void()> trim) : trim_(std::move(trim)), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "heap-trim");
}

HeapTrimmer::~HeapTrimmer() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HeapTrimmer::Begin() {
  {
    const std::lock_guard lock(mutex_);
    wanted_ = true;
  }
  changed_.notify_all();
}

void HeapTrimmer::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || wanted_; });
    if (closing_) return;
    lock.unlock();
    trim_();
    lock.lock();
    wanted_ = false;
  }
}

}  // namespace tarn::server
