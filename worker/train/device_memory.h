// Growing buffers in GPU memory and in pinned host memory.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "kernels/stream.h"

namespace tarn::worker {

// A quarter more than n, because batches differ in size; this avoids most allocations.
inline std::size_t WithRoom(std::size_t n) { return n + n / 4; }

// Grows *buffer, an unused DeviceBuffer or PinnedBuffer, to at least this size; its contents are then lost. kIo: out of
// memory; the message has `what` and the bytes.
template <typename BufferType>
Status Fit(kernels::Stream& stream, std::size_t bytes, std::string_view what, BufferType* buffer) {
  if (buffer->size() >= bytes) return {};
  *buffer = BufferType();
  auto larger = BufferType::Allocate(stream, WithRoom(bytes), what);
  if (!larger) larger = BufferType::Allocate(stream, bytes, what);
  if (!larger) return std::unexpected(std::move(larger).error());
  *buffer = std::move(*larger);
  return {};
}

}  // namespace tarn::worker
