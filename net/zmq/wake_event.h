// Lets others end the wait of the thread that owns a transport. Threads of this process call Wake: a polling owner sees
// a flag, a sleeping one a readable file. Processes that share memory with it write to the file (net/shm_channel.h).
#pragma once

#include <atomic>
#include <utility>

#include "core/descriptor.h"
#include "net/wake_file.h"

namespace tarn::net {

// Any thread may call Wake; only the owner calls the rest.
class WakeEvent {
 public:
  // No wake-up is lost: each side sets its own flag, then reads the other's. So the owner sees `asked_`, or Wake writes
  // to the file.
  void Wake() {
    asked_.store(true);
    if (asleep_.load()) WriteWake(file_.get());
  }

  bool asked() const { return asked_.load(std::memory_order_relaxed); }
  // Readable after a Wake between BeginSleep and EndSleep, and when another process has written to it.
  int file() const { return file_.get(); }
  // False: Wake was called before, so do not sleep. Call EndSleep in any case.
  bool BeginSleep() {
    asleep_.store(true);
    return !asked_.load();
  }
  void EndSleep() { asleep_.store(false); }
  // Records whether a poll found file() readable.
  void SetReadable(bool readable) { readable_ = readable; }
  bool readable() const { return readable_; }

  // Whether Wake was called since the last Take.
  bool Take() {
    if (std::exchange(readable_, false)) ReadWakes(file_.get());
    return asked() && asked_.exchange(false);
  }

 private:
  Descriptor file_ = NewWakeFile();
  bool readable_ = false;
  std::atomic<bool> asked_{false}, asleep_{false};
};

}  // namespace tarn::net
