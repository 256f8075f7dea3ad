// A file that other threads and processes make readable to end the poll of its owner: an eventfd, so that any number of
// wake-ups are one read.
#pragma once

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "core/descriptor.h"
#include "core/error.h"

namespace tarn::net {

inline Descriptor NewWakeFile() {
  Descriptor file(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  TARN_CHECK(file.get() >= 0, "no file descriptor left");
  return file;
}

// Whether a file from another process is an eventfd that does not block: a write to a file of another kind could block
// or raise a signal.
inline bool IsWakeFile(int file) {
  constexpr std::string_view kEventFile = "anon_inode:[eventfd]";
  std::array<char, 64> name{};
  const ssize_t size = readlink(fmt::format("/proc/self/fd/{}", file).c_str(), name.data(), name.size());
  const int flags = fcntl(file, F_GETFL);
  return size > 0 && std::string_view(name.data(), static_cast<std::size_t>(size)) == kEventFile && flags >= 0 &&
         (flags & O_NONBLOCK) != 0;
}

inline void WriteWake(int file) {
  const std::uint64_t one = 1;
  // Fails only if the counter is full; then a wake-up is pending anyway.
  [[maybe_unused]] const auto written = write(file, &one, sizeof(one));
}

inline void ReadWakes(int file) {
  std::uint64_t count = 0;
  [[maybe_unused]] const auto taken = read(file, &count, sizeof(count));
}

}  // namespace tarn::net
