// Synchronous copies between the host and a GPU, through pinned memory. So any copy of unpinned memory on an emulated
// GPU is an error of the program under test (tests/emulated/main.cc).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "kernels/stream.h"

namespace tarn::kernels {

class PinnedCopies {
 public:
  explicit PinnedCopies(Stream* stream) : stream_(*stream) {
    auto staging = PinnedBuffer::Allocate(*stream, kBytes, "a test's copies");
    EXPECT_TRUE(staging.has_value()) << staging.error().message;
    staging_ = std::move(*staging);
  }

  void ToDevice(const void* host, std::size_t bytes, void* device) {
    for (std::size_t at = 0; at < bytes; at += kBytes) {
      const std::size_t n = std::min(kBytes, bytes - at);
      std::memcpy(staging_.data(), static_cast<const std::byte*>(host) + at, n);
      CopyToDevice(stream_, staging_.data(), n, static_cast<std::byte*>(device) + at);
      Wait();
    }
  }

  void ToHost(const void* device, std::size_t bytes, void* host) {
    for (std::size_t at = 0; at < bytes; at += kBytes) {
      const std::size_t n = std::min(kBytes, bytes - at);
      CopyToHost(stream_, static_cast<const std::byte*>(device) + at, n, staging_.data());
      Wait();
      std::memcpy(static_cast<std::byte*>(host) + at, staging_.data(), n);
    }
  }

 private:
  static constexpr std::size_t kBytes = 1 << 20;

  void Wait() {
    const Status status = stream_.Wait();
    EXPECT_TRUE(status.has_value()) << status.error().message;
  }

  Stream& stream_;
  PinnedBuffer staging_;
};

}  // namespace tarn::kernels
