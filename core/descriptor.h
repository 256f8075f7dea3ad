// A file descriptor that is closed at the end of its scope.
#pragma once

#include <unistd.h>

#include <utility>

namespace tarn {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}  // below 0: none
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : fd_(other.Release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  // Releases the descriptor: the caller must close it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace tarn
