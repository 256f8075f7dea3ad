// Hands the newest value of one thread to another one. Neither ever waits for the other: a value that the reader has
// not taken is replaced.
//
//   mailbox.Put(std::make_unique<StatusReport>(...));             // the writer's thread
//   if (const StatusReport* report = mailbox.Latest()) ...        // the reader's thread
#pragma once

#include <atomic>
#include <memory>

namespace tarn {

template <typename T>
class Mailbox {
 public:
  Mailbox() = default;
  ~Mailbox() { delete next_.load(std::memory_order_acquire); }
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // One thread at a time.
  void Put(std::unique_ptr<const T> value) { delete next_.exchange(value.release(), std::memory_order_acq_rel); }

  // One thread at a time. The value that was put last, until the next call; null before the first one.
  const T* Latest() {
    if (const T* next = next_.exchange(nullptr, std::memory_order_acq_rel)) latest_.reset(next);
    return latest_.get();
  }

 private:
  std::atomic<const T*> next_ = nullptr;  // put and not taken yet
  std::unique_ptr<const T> latest_;       // the reader's
};

}  // namespace tarn
