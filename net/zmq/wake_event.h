// How another thread ends the wait of the one that owns a transport: a word for whoever looks, a file for whoever
// sleeps.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "core/descriptor.h"
#include "core/error.h"

namespace tarn::net {

// Wake may be called from any thread; the rest is the owner's.
class WakeEvent {
 public:
  WakeEvent() : file_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    TARN_CHECK(file_.get() >= 0, "no file descriptor left");
  }

  // Whoever polls sees the word or is told by the file: each side writes its own, then reads the other's.
  void Wake() {
    asked_.store(true);
    if (!asleep_.load()) return;
    const std::uint64_t one = 1;
    // Fails only if the counter is full: then the wake-up is pending anyway.
    [[maybe_unused]] const auto written = write(file_.get(), &one, sizeof(one));
  }

  bool asked() const { return asked_.load(std::memory_order_relaxed); }
  // Readable after a Wake that came between BeginSleep and EndSleep.
  int file() const { return file_.get(); }
  // False: Wake came before, do not sleep. EndSleep follows in any case.
  bool BeginSleep() {
    asleep_.store(true);
    return !asked_.load();
  }
  void EndSleep() { asleep_.store(false); }
  // What a poll has found.
  void SetReadable(bool readable) { readable_ = readable; }

  // Whether Wake was called since the last time.
  bool Take() {
    std::uint64_t count = 0;
    if (std::exchange(readable_, false)) [[maybe_unused]]
      const auto taken = read(file_.get(), &count, sizeof(count));
    return asked() && asked_.exchange(false);
  }

 private:
  Descriptor file_;
  bool readable_ = false;
  std::atomic<bool> asked_{false}, asleep_{false};
};

}  // namespace tarn::net
