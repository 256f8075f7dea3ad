// Passes the newest value from one thread to another. Neither waits for the other: a value that was not read is
// replaced.
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

  // One thread at a time. The value of the last Put, valid until the next call; null before the first Put.
  const T* Latest() {
    if (const T* next = next_.exchange(nullptr, std::memory_order_acq_rel)) latest_.reset(next);
    return latest_.get();
  }

 private:
  std::atomic<const T*> next_ = nullptr;  // the newest value, not read yet
  std::unique_ptr<const T> latest_;       // the reader's
};

}  // namespace tarn
