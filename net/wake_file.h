// A file that other threads and processes make readable to end the poll of its owner: an eventfd, so that any number of
// wake-ups are one read.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

#include "core/descriptor.h"
#include "core/error.h"

namespace tarn::net {

inline Descriptor NewWakeFile() {
  Descriptor file(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  TARN_CHECK(file.get() >= 0, "no file descriptor left");
  return file;
}

// Whether a file that another process has sent can be written to without blocking.
inline bool NeverBlocks(const Descriptor& file) {
  const int flags = fcntl(file.get(), F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) != 0;
}

inline void WriteWake(const Descriptor& file) {
  const std::uint64_t one = 1;
  // Fails only if the counter is full; then a wake-up is pending anyway.
  [[maybe_unused]] const auto written = write(file.get(), &one, sizeof(one));
}

inline void ReadWakes(const Descriptor& file) {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = read(file.get(), &count, sizeof(count));
}

}  // namespace tarn::net
