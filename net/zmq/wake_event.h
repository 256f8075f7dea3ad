// Lets another thread end the wait of the thread that owns a transport: a polling thread sees a flag, a sleeping one a
// readable file.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "core/descriptor.h"
#include "core/error.h"

namespace tarn::net {

// Any thread may call Wake; only the owner calls the rest.
class WakeEvent {
 public:
  WakeEvent() : file_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    TARN_CHECK(file_.get() >= 0, "no file descriptor left");
  }

  // No wake-up is lost: each side sets its own flag, then reads the other's. So the owner sees `asked_`, or Wake writes
  // to the file.
  void Wake() {
    asked_.store(true);
    if (!asleep_.load()) return;
    const std::uint64_t one = 1;
    // Fails only if the counter is full; then a wake-up is pending anyway.
    [[maybe_unused]] const auto written = write(file_.get(), &one, sizeof(one));
  }

  bool asked() const { return asked_.load(std::memory_order_relaxed); }
  // Readable after a Wake between BeginSleep and EndSleep.
  int file() const { return file_.get(); }
  // False: Wake was called before, so do not sleep. Call EndSleep in any case.
  bool BeginSleep() {
    asleep_.store(true);
    return !asked_.load();
  }
  void EndSleep() { asleep_.store(false); }
  // Records whether a poll found file() readable.
  void SetReadable(bool readable) { readable_ = readable; }

  // Whether Wake was called since the last Take.
  bool Take() {
    std::uint64_t count = 0;
    if (std::exchange(readable_, false)) {
      [[maybe_unused]] const auto taken = read(file_.get(), &count, sizeof(count));
    }
    return asked() && asked_.exchange(false);
  }

 private:
  Descriptor file_;
  bool readable_ = false;
  std::atomic<bool> asked_{false}, asleep_{false};
};

}  // namespace tarn::net
