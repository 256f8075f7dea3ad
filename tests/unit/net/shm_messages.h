// Messages of the tests of shared memory.
#pragma once

#include <poll.h>

#include <cstddef>
#include <cstring>

#include "core/buffer.h"
#include "core/hash.h"
#include "net/shm_channel.h"
#include "net/shm_segment.h"

namespace tarn::net {

inline constexpr std::size_t kRing = ShmSegment::kRingBytesMin;
inline constexpr std::size_t kAnyBytes = std::size_t{1} << 30;

inline Buffer RandomBytes(SplitMix* random, std::size_t bytes) {
  Buffer buffer = Buffer::Allocate(bytes);
  for (std::size_t i = 0; i < bytes; ++i) buffer.data()[i] = static_cast<std::byte>(random->Next());
  return buffer;
}

inline bool Same(const Frames& sent, const ShmFrames& got) {
  if (got.views().size() != sent.size()) return false;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const FrameView view = got.views()[i];
    if (view.size != sent[i].size()) return false;
    if (view.size != 0 && std::memcmp(view.data, sent[i].data(), view.size) != 0) return false;
  }
  return true;
}

inline bool IsReadable(int file) {
  pollfd one{file, POLLIN, 0};
  return poll(&one, 1, 0) == 1;
}

}  // namespace tarn::net
